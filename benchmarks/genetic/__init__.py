"""SwapAdvisor's genetic algorithm over orders and memory pools (thesis §4.4), as published."""
