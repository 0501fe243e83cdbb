"""How a loop's iterations are divided among workers, and in which order each takes its blocks (Orion, thesis §5.3.3)."""
