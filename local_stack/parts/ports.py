"""Chooses ports on 127.0.0.1: the requested ones, or free ones.

All ports of a stack are held until the last one is chosen, so they differ.  Another program may
take one between choice and use; that part then fails to start, and its log says so.  Free ones are
not among those that systems give to connections: a broker needs seconds to listen, and any client
of the machine could have taken its port by then.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Mapping

from tidegate.local_stack.errors import PortTakenError

HOST = "127.0.0.1"

_LISTENING = range(15_000, 32_000)
"""Below what Linux (32768 and up) and others (49152 and up) give to connections."""
_TRIES = 50


def choose_ports(wanted: Mapping[str, int]) -> dict[str, int]:
    """Return the requested ports, with a free one for each 0.

    `wanted` maps a setting's name to its port.  Raises PortTakenError, which names the setting.
    """
    chosen: dict[str, int] = {}
    with contextlib.ExitStack() as held:
        # Requested ports first, so that no free one is chosen that is requested too.
        for name, port in sorted(wanted.items(), key=lambda item: item[1] == 0):
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            # As the servers do; without it the port of a stack that just stopped counts as taken.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                _bind(listener, port)
                listener.listen(1)
            except OSError as error:
                raise PortTakenError(
                    f"{name} {port} cannot be used: {error.strerror}",
                    hint="Choose another port, or 0 for a free one",
                ) from None
            chosen[name] = listener.getsockname()[1]
    return {name: chosen[name] for name in wanted}


def _bind(listener: socket.socket, port: int) -> None:
    """Bind to a port, or to a free one for 0; raises OSError if it is taken."""
    for _ in range(0 if port else _TRIES):
        with contextlib.suppress(OSError):
            listener.bind((HOST, random.choice(_LISTENING)))  # noqa: S311 - no secret
            return
    listener.bind((HOST, port))


def accepts(port: int) -> bool:
    """Return whether a program listens on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        return client.connect_ex((HOST, port)) == 0
