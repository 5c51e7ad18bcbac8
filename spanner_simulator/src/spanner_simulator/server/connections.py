"""Cuts TCP connections of this process's own server, as a failing network would.

gRPC offers no way to end one connection, so the accepted socket is found among the open files of
the process by the peer's address, and shut down without gRPC's knowledge: both sides lose the
connection in the middle of their messages.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

_OPEN_FILES = Path("/dev/fd")
_MAPPED = "::ffff:"
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def cut_connection(peer: str) -> bool:
    """Cut the connection from a peer in gRPC's form, `ipv4:127.0.0.1:5`; whether it existed."""
    return _cut(lambda connection: _peer(connection) == unquote(peer)) > 0


def cut_connections(port: int) -> int:
    """Cut all connections to a local port of this process; return their number."""
    return _cut(lambda connection: connection.getsockname()[1] == port)


def _cut(is_meant: Callable[[socket.socket], bool]) -> int:
    count = 0
    for connection in _connections():
        # The other side may have closed it.
        with suppress(OSError):
            if is_meant(connection):
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _peer(connection: socket.socket) -> str:
    host, port = connection.getpeername()[:2]
    # gRPC serves IPv4 on sockets of both families, and names callers by their own family.
    host = host.removeprefix(_MAPPED)
    if ":" in host:
        return f"ipv6:[{host}]:{port}"
    return f"ipv4:{host}:{port}"


def _connections() -> Iterator[socket.socket]:
    """The connected TCP sockets of this process, each as a duplicate that is closed after use."""
    for open_file in _OPEN_FILES.iterdir():
        # Files open and close meanwhile, and most are not sockets: errors are ignored.
        with suppress(OSError):
            duplicate = os.dup(int(open_file.name))
            try:
                connection = socket.socket(fileno=duplicate)
            except OSError:
                os.close(duplicate)
                continue
            with connection:
                if connection.family in _FAMILIES and connection.type == socket.SOCK_STREAM:
                    connection.getpeername()
                    yield connection
