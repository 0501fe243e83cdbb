"""What a serial loop reads and writes: from the Python text of its body to dependence vectors (Orion, thesis ch. 5)."""
