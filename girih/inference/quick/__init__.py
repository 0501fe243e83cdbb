"""The quick way of a call: it looks whether anything was changed, and runs what was made for such a call."""
