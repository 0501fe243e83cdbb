"""One device's instructions, and what it keeps."""
