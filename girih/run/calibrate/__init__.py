"""What operators, links, copies and scratch take on this host."""
