"""What leaves a device and comes back: when each storage is there, and the Program in which it is so."""
