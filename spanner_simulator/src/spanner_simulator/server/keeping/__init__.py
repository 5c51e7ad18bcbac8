"""Databases that outlive the process: journals on disk, and their way back."""
