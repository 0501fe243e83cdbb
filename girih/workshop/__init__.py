"""Where rules are made: generated, refuted by a solver, read from files, TASO's among them."""
