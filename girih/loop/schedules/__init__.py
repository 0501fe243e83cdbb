"""How a loop's iterations are divided among workers, and in which order each takes its blocks (Orion, §5.3.3)."""
