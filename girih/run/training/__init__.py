"""Training by a plan: sessions, checkpoints, verification."""
