"""Runs a loop's schedule: on threads of this process, or on processes that share memory."""
