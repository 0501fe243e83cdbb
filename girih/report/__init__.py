"""What people look at: tables in the terminal, and the text form of a plan."""
