"""Shared tables of parameters behind servers: bounded staleness, managed bandwidth, snapshots (Bösen).

In the order of a message: `options` (what may be chosen), `worker` (what a function gets), `client` (its side of the
protocol), `messages`, `sockets` (ZeroMQ), `server` (the other side), `rows` (what both hold rows in), `bandwidth` (what
is sent when), `snapshots`; `processes` and `session` start and watch all that; `interleavings` checks it in all orders
of messages. The user's face is `girih.loop.tables` (`girih/loop/shared.py`).
"""
