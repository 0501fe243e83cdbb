"""Networks for sequences: recurrent ones, and transformers."""
