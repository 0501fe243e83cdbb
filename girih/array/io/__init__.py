"""Arrays from files and back."""
