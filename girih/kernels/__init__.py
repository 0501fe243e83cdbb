"""What computes an operator where PyTorch alone does not."""
