"""Ports on 127.0.0.1: free ones, and the clear error when one that was asked for is taken.

All ports of a stack are chosen while each is held, so that they are different ones.
Between choosing and use another program may still take one; its part then fails by its own log.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from tidegate.local_stack.errors import PortTakenError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HOST", "accepts", "choose_ports"]

HOST = "127.0.0.1"


def choose_ports(wanted: Mapping[str, int]) -> dict[str, int]:
    """Check every port that is wanted, and choose a free one wherever 0 is.

    `wanted` maps the setting's name to its port, so that `PortTakenError` can name the setting.
    """
    chosen: dict[str, int] = {}
    with contextlib.ExitStack() as held:
        # The fixed ones first: a chosen one must not be one of them.
        for name, port in sorted(wanted.items(), key=lambda item: item[1] == 0):
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            # As the servers do; without it a port of a stack stopped a moment ago counts as taken.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
                listener.listen(1)
            except OSError as error:
                raise PortTakenError(
                    f"{name} {port} cannot be used: {error.strerror}",
                    hint="Choose another port, or 0 for a free one",
                ) from None
            chosen[name] = listener.getsockname()[1]
    return {name: chosen[name] for name in wanted}


def accepts(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        return client.connect_ex((HOST, port)) == 0
