"""The steps and storages of one device on flat arrays: what is tried many times is compiled."""
