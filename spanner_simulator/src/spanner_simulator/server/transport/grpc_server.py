"""The gRPC server: its address and its options.

Uses grpc.aio: a stream that waits for data needs a coroutine, not a thread, so there may be
thousands, and the core needs no lock.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

import grpc

from spanner_simulator.server.host import Host
from spanner_simulator.server.transport.methods import method_handlers

_MESSAGE_BYTES_MAX = 128 * 1024 * 1024
_STREAMS_MAX = 1_000_000


class PortTakenError(Exception):
    """The address cannot be bound."""


async def start_grpc_server(host: Host, address: str) -> tuple[Any, int]:
    """A started grpc.aio server and its port; raises `PortTakenError`."""
    server = grpc.aio.server(
        options=[
            # Two servers on one port would share the calls; failing is better.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
            # One stream per stream partition: a limit would only make readers hang.
            ("grpc.max_concurrent_streams", _STREAMS_MAX),
            # Readers keep idle streams alive with pings; do not punish them.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
        ]
    )
    server.add_generic_rpc_handlers(method_handlers(host))
    _check_free(address)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise PortTakenError(address) from error
    if port == 0:
        raise PortTakenError(address)
    await server.start()
    return server, port


def _check_free(address: str) -> None:
    """Reject a used port before gRPC does, which would print its own lines about it."""
    name, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((name, int(port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTakenError(address) from error
            raise OSError(f"cannot listen on {address}: {error.strerror or error}") from error
