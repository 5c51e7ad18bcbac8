"""The demo: a bank whose changes go through every part while processes are killed."""
