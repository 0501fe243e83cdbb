"""Arrays that live in the workers between programs."""
