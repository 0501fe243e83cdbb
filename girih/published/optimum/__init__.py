"""The fastest plan of a small space, with a proof (FlexFlow §3.7.5)."""
