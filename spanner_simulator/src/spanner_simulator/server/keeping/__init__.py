"""Databases that survive the process: journals on disk, and their restoration."""
