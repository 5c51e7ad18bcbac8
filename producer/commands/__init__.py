"""What each command of `tidegate-producer` does, one module per command."""
