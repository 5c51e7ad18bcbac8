"""Instances, databases and long-running operations."""
