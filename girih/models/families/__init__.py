"""Models by name: how names are read, and what each model is trained on."""
