"""Where workers live: threads, processes, torchrun's ranks, Ray's actors."""
