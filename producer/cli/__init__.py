"""`tidegate-producer`: flags in `commands` and `operations`, and a module for each command."""

from tidegate.producer.cli.commands import app, main

__all__ = ["app", "main"]
