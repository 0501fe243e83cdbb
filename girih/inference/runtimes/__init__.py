"""Libraries that run a whole model, each tried in a process of its own before it is let into the user's."""
