"""How a plan keeps a memory limit: divisions, movements, recomputation and pieces, proposed and judged."""
