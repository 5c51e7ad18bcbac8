"""What each command of `tidegate-local` does that keeps a stack, runs the demo or shows a table."""
