"""Graph → Graph: rewrites that keep what is computed."""
