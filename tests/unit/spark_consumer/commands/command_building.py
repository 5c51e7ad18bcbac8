"""Settings that every command needs, and the flags that give them."""

from __future__ import annotations

SETTINGS = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


def flags():
    return [
        part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
