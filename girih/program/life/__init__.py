"""What each device holds, and when: one walk of a Program, from which its account and its lifetimes follow."""
