"""google.longrunning.Operations: every operation is done before its name is returned.

Clients may poll, but need not: operations stay until their instance is deleted.
"""

from __future__ import annotations

import re

from google.longrunning import operations_pb2

from spanner_simulator.errors import SpannerError, already_exists, invalid_argument, not_found
from spanner_simulator.server.host import Host
from spanner_simulator.server.messages import Message
from spanner_simulator.server.statuses import status_message

_OPERATION_ID = re.compile(r"[a-z][a-z0-9_]*")


def operation_name(host: Host, parent: str, operation_id: str = "") -> str:
    """The name of a new operation, with the client's id or a generated one.

    INVALID_ARGUMENT or ALREADY_EXISTS for an id that is invalid or in use.
    """
    if not operation_id:
        number = len(host.operations)
        while f"{parent}/operations/_auto_op_{number:016x}" in host.operations:
            number += 1
        return f"{parent}/operations/_auto_op_{number:016x}"
    if _OPERATION_ID.fullmatch(operation_id) is None:
        raise invalid_argument(f"Invalid operation id: {operation_id}.")
    name = f"{parent}/operations/{operation_id}"
    if name in host.operations:
        raise already_exists(f"Operation already exists: {name}")
    return name


def done_operation(
    host: Host, name: str, *, metadata: Message, outcome: Message | SpannerError
) -> Message:
    """An operation that has ended, stored under its name, with a response or an error."""
    operation = operations_pb2.Operation(name=name, done=True)
    operation.metadata.Pack(metadata)
    if isinstance(outcome, SpannerError):
        operation.error.CopyFrom(status_message(outcome))
    else:
        operation.response.Pack(outcome)
    host.operations[name] = operation
    return operation


class OperationsService:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def get_operation(self, request: Message) -> Message:
        """Find an operation."""
        if request.name not in self._host.operations:
            raise not_found(f"Operation not found: {request.name}")
        return self._host.operations[request.name]
