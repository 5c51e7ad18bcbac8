"""`tidegate-producer`: the flags are in `commands` and `operations`, each command has a module."""

from tidegate.producer.cli.commands import app, main

__all__ = ["app", "main"]
