"""Compares the output with what the simulator committed; imports neither producer nor consumer."""
