"""google.longrunning.Operations: every operation is done before its name is known.

Clients may poll, and need not: operations stay until they are deleted or their instance goes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.paging import page_of
from spanner_simulator.server.statuses import status_message

if TYPE_CHECKING:
    from spanner_simulator.server.host import Host
    from spanner_simulator.server.messages import Message


_OPERATION_ID = re.compile(r"[a-z][a-z0-9_]*")


def operation_name(host: Host, parent: str, operation_id: str = "") -> str:
    """The name of a new operation: with the id that the client chose, or one of our own.

    INVALID_ARGUMENT or ALREADY_EXISTS for an id that is invalid or in use.
    """
    if not operation_id:
        number = len(host.operations)
        while f"{parent}/operations/_auto_op_{number:016x}" in host.operations:
            number += 1
        return f"{parent}/operations/_auto_op_{number:016x}"
    if _OPERATION_ID.fullmatch(operation_id) is None:
        raise SpannerError(Code.INVALID_ARGUMENT, f"Invalid operation id: {operation_id}.")
    name = f"{parent}/operations/{operation_id}"
    if name in host.operations:
        raise SpannerError(Code.ALREADY_EXISTS, f"Operation already exists: {name}")
    return name


def done_operation(
    host: Host, name: str, *, metadata: Message, outcome: Message | SpannerError
) -> Message:
    """An operation that has ended, kept under its name: with a response or with an error."""
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

    def _check(self, name: str) -> None:
        if name not in self._host.operations:
            raise SpannerError(Code.NOT_FOUND, f"Operation not found: {name}")

    async def get_operation(self, request: Message) -> Message:
        """Find an operation."""
        self._check(request.name)
        return self._host.operations[request.name]

    async def list_operations(self, request: Message) -> Message:
        """The operations of a resource, whose name may end with /operations."""
        if request.filter:
            raise SpannerError(
                Code.UNIMPLEMENTED, "The simulator does not support: filters of operations"
            )
        prefix = request.name.removesuffix("/operations") + "/operations/"
        found = [one for name, one in self._host.operations.items() if name.startswith(prefix)]
        reply = operations_pb2.ListOperationsResponse()
        page, reply.next_page_token = page_of(
            found, size=request.page_size, token=request.page_token
        )
        reply.operations.extend(page)
        return reply

    async def cancel_operation(self, request: Message) -> Message:
        """Comes too late for every operation, which is no error."""
        self._check(request.name)
        return empty_pb2.Empty()

    async def delete_operation(self, request: Message) -> Message:
        """Forget an operation."""
        self._check(request.name)
        del self._host.operations[request.name]
        return empty_pb2.Empty()
