"""Who runs a command, for records that name a person."""

from __future__ import annotations

import getpass
import socket


def this_user() -> str:
    """Return the user and the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
