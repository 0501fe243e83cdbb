"""Shared tables of parameters behind servers: bounded staleness, managed bandwidth, snapshots (Bösen).

In the order of a message: `options` (what may be chosen), `worker` (what a function gets), `client` (its side of the
protocol), `messages`, `sockets` (ZeroMQ), `server` (the other side), `rows` (what both hold rows in), `bandwidth` (what
is sent when), `snapshots`; `session` starts servers and workers as jobs (`girih.run.engines.jobs`), and watches them.
`benchmarks.tables_interleavings` checks the protocol in all orders of messages. The user's face is `girih.loop.tables`
(`girih/loop/shared.py`).
"""
