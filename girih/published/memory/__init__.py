"""What people do to train within less memory, as published: baselines beside girih's own search."""
