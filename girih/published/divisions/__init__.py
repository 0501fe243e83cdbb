"""What people do without a search."""
