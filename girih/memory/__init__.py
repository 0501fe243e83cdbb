"""What devices hold, and when: exact, by liveness of storages."""
