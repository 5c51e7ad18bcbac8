"""The values of a response's messages, with those that come in several chunks put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from tidegate.producer.spanner.api_messages import ResultSetMetadata
from tidegate.producer.spanner.raw_values import Serialised, parse_response, parse_value
from tidegate.producer.spanner.values import merge
from tidegate.schemas.errors import SchemaError


class Chunks:
    """Takes the messages of one response, in their order.

    A value that a message leaves unfinished (`chunked_value`) is kept until its rest arrives.
    """

    def __init__(self) -> None:
        self._unfinished: Value | None = None

    def take(self, message: bytes) -> tuple[bytes, Sequence[Serialised]]:
        """Return a message's metadata, empty if it has none, and the values that it completes.

        Raises SchemaError for bytes that are no `PartialResultSet`.
        """
        response = parse_response(message)
        values = response.values[:]
        if self._unfinished is not None and values:
            merge(self._unfinished, parse_value(values[0]))
            values[0] = self._unfinished.SerializeToString()
            self._unfinished = None
        if response.chunked_value and values:
            self._unfinished = parse_value(values.pop())
        return b"".join(response.metadata), values

    @property
    def is_between_values(self) -> bool:
        """Whether no value is unfinished."""
        return self._unfinished is None

    @property
    def unfinished_bytes(self) -> int:
        """The size of the value that is kept until its rest arrives; 0 without one."""
        return 0 if self._unfinished is None else int(self._unfinished.ByteSize())

    def end(self) -> None:
        """Check that the response did not stop in the middle of a value; raises SchemaError."""
        if self._unfinished is not None:
            raise SchemaError("a response ended in the middle of a value")


def row_type(metadata: bytes) -> Any:
    """Return the row type of a serialised `ResultSetMetadata`; raises SchemaError otherwise."""
    try:
        return ResultSetMetadata.pb().FromString(metadata).row_type
    except DecodeError as error:
        raise SchemaError("a response's metadata cannot be read", cause=str(error)) from error
