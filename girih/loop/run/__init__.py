"""Runs a loop's schedule: on threads of this process, or on workers that hand parts of arrays to each other."""
