"""All choices of a plan together: proposals across rewrites, divisions, orders and memory, judged by one simulator."""
