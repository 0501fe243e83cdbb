"""What rows lie in: `keyed` (a worker's cache and log as flat arrays), `cache` (what a worker holds of a table),
`sparse` (rows that are maps), `store` (a server's part of a table, and its shadows), `functions` (what servers may do
with updates).
"""
