"""What may be chosen: divisions, layouts, and their tables of costs."""
