"""What a call, a step, a transfer takes: the roofline, what was measured, prices of a Program's calls."""
