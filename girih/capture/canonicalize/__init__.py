"""Recorded ATen calls in girih's vocabulary."""
