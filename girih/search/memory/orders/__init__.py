"""Orders of a program's steps: those that lower the peak, and those that keep what is used together on the device."""
