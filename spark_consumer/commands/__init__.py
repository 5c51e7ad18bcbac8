"""What each command of `tidegate-consumer` does, one module per command."""
