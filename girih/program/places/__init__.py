"""Places: an address in one arena for every storage of a device."""
