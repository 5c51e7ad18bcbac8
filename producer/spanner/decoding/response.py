"""The values of a `PartialResultSet`, serialised, one level of nesting at a time.

Protobuf's generated classes make an object for each value, and most values are read once and
dropped; that was the larger part of decoding.  The classes here describe the same bytes with the
inner messages as `bytes` fields, which the encoding allows: a message and a byte string are encoded
alike.  So protobuf's own parser splits a list into serialised values in one call, an equal list is
equal bytes, and values that are not used are not parsed.

A serialised value is one tag, one length and the content, unless its sender used another encoding
that is allowed too (a repeated kind, an unknown field): then the generated class parses it.

A large value is not copied from level to level: it is a view of its message.  Copy a value that is
kept longer than its message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from google.cloud.spanner_v1.types import ResultSetMetadata
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Value

from tidegate.producer.records import StreamRecord
from tidegate.schemas.errors import SchemaError

Serialised: TypeAlias = bytes | memoryview
"""Bytes of a message; a view if they are many."""

# The first byte of a serialised Value, by its kind.
TEXT, LIST = 0x1A, 0x32
NULL = b"\x08\x00"
"""The serialised Value null."""

_LARGE_BYTES = 1 << 16
"""Values from this size on are views."""

_METADATA, _ROW, _IS_CHUNKED, _ELEMENT = 0x0A, 0x12, 0x18, 0x0A
"""Tags of the fields of a response and of a list."""

_SIZED = frozenset((_METADATA, _ROW, 0x22, 0x2A))
"""Tags of fields with a length: metadata and rows, a response's resume token and statistics."""
_SINGLE = frozenset((_IS_CHUNKED, 0x48))
"""Tags of fields with a number in a response: whether it is chunked, and whether it is the last."""

_TWO_BYTES_MAX = 3 + (1 << 14) - 1
"""The size of the largest Value whose length takes two bytes."""


class _Response(NamedTuple):
    """The fields of a `PartialResultSet` that are used, as parsed by `_parse_response`."""

    metadata: list[Serialised]
    values: list[Serialised]
    chunked_value: bool


def parse_response(message: bytes) -> Any:
    """Return a `PartialResultSet`: `metadata` and `values` as bytes, and `chunked_value`.

    The items of `metadata`, joined, are one message: protobuf merges a message that occurs twice.
    Raises SchemaError for other bytes.
    """
    if len(message) >= _LARGE_BYTES and (fields := _fields_of(message)) is not None:
        metadata = [content for tag, content in fields if tag == _METADATA]
        values = [content for tag, content in fields if tag == _ROW]
        chunked = [content for tag, content in fields if tag == _IS_CHUNKED]
        return _Response(metadata, values, bool(chunked) and chunked[-1] != b"\0")
    try:
        return _parse_response(message)
    except DecodeError as error:
        raise _malformed(error) from error


def parse_value(value: Serialised) -> Value:
    """Return a serialised Value as protobuf's message; raises SchemaError for other bytes."""
    try:
        return Value.FromString(bytes(value))
    except DecodeError as error:
        raise _malformed(error) from error


def content_of(value: Serialised, kind: int) -> Serialised | None:
    """Return the content of a serialised Value of this kind, a text or a list.

    None for a value of another kind; raises SchemaError for other bytes.
    """
    size = len(value)
    if size > 1 and value[0] == kind:
        length = value[1]
        if length < 128:  # it takes one byte
            if length == size - 2:
                return value[2:]
        elif size <= _TWO_BYTES_MAX:
            if size > 2 and length - 128 + (value[2] << 7) == size - 3:
                return value[3:]
        elif (bounds := _take(value, 1)) is not None and bounds[1] == size:
            return value[bounds[0] :]
    return None if value == NULL else _content_of_unusual(value, kind)


def elements(content: Serialised) -> list[Serialised]:
    """Return the values of a list, serialised; raises SchemaError for other bytes."""
    if len(content) >= _LARGE_BYTES and (fields := _fields_of(content)) is not None:
        return [value for tag, value in fields if tag == _ELEMENT]
    try:
        # A slice is made at once; an iteration accesses each element.
        return _parse_list(content).values[:]  # type: ignore[no-any-return]  # protobuf's messages have no types
    except DecodeError as error:
        raise _malformed(error) from error


def _fields_of(data: Serialised) -> list[tuple[int, Serialised]] | None:
    """Return the tag and the content of each field, in order; small contents are copied.

    None for an encoding with a tag or a number of more than one byte, or of another kind, and for
    one that cannot be parsed: protobuf's own parser then handles it.
    """
    view, position, end = memoryview(data), 0, len(data)
    fields: list[tuple[int, Serialised]] = []
    while position < end:
        tag = view[position]
        if tag in _SIZED:
            bounds = _take(view, position + 1)
        elif tag in _SINGLE and position + 1 < end and view[position + 1] < 128:
            bounds = position + 1, position + 2
        else:
            return None
        if bounds is None:
            return None
        start, position = bounds
        content = view[start:position]
        fields.append((tag, content if position - start >= _LARGE_BYTES else bytes(content)))
    return fields


def _take(data: Serialised, position: int) -> tuple[int, int] | None:
    """Return the bounds of the content after its length; None if it does not end in `data`."""
    length = 0
    for shift in (0, 7, 14, 21):
        if position >= len(data):
            return None
        byte = data[position]
        position += 1
        length |= (byte & 127) << shift
        if byte < 128:
            end = position + length
            return (position, end) if end <= len(data) else None
    return None


def _content_of_unusual(value: Serialised, kind: int) -> bytes | None:
    """Return the content of any Value, by protobuf's own class."""
    parsed = parse_value(value)
    if kind == TEXT and parsed.HasField("string_value"):
        return bytes(parsed.string_value.encode())
    if kind == LIST and parsed.HasField("list_value"):
        return bytes(parsed.list_value.SerializeToString())
    return None


def _malformed(error: DecodeError) -> SchemaError:
    return SchemaError("a response is not a PartialResultSet", cause=str(error))


def _make_parsers() -> tuple[Callable[[bytes], Any], Callable[[Serialised], Any]]:
    """Return the parsers of a response and of a list."""
    file = FileDescriptorProto(name="tidegate/raw.proto", package="tidegate", syntax="proto3")
    response, values = file.message_type.add(name="Response"), file.message_type.add(name="List")
    once, repeated = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    response.field.add(name="metadata", number=1, type=Field.TYPE_BYTES, label=repeated)
    response.field.add(name="values", number=2, type=Field.TYPE_BYTES, label=repeated)
    response.field.add(name="chunked_value", number=3, type=Field.TYPE_BOOL, label=once)
    values.field.add(name="values", number=1, type=Field.TYPE_BYTES, label=repeated)
    pool = DescriptorPool()
    pool.Add(file)
    descriptors = (pool.FindMessageTypeByName(f"tidegate.{name}") for name in ("Response", "List"))
    of_response, of_list = (GetMessageClass(descriptor).FromString for descriptor in descriptors)
    return of_response, of_list


_parse_response, _parse_list = _make_parsers()


_MERGEABLE = {"string_value", "list_value"}


class Chunks:
    """Adds the messages of one response, in their order.

    A value that a message leaves unfinished (`chunked_value`) is kept until its rest arrives.
    """

    def __init__(self) -> None:
        self._unfinished: Value | None = None

    def take(self, message: bytes) -> tuple[bytes, Sequence[Serialised]]:
        """Return a message's metadata, empty if it has none, and the values that it completes.

        Raises SchemaError for other bytes.
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
        """The size of the unfinished value; 0 if there is none."""
        return 0 if self._unfinished is None else int(self._unfinished.ByteSize())

    def end(self) -> None:
        """Check that the response did not stop in the middle of a value; raises SchemaError."""
        if self._unfinished is not None:
            raise SchemaError("a response ended in the middle of a value")


class Decoder:
    """Decodes the response messages of one query, in their order."""

    def __init__(self) -> None:
        self._chunks = Chunks()

    def decode(self, message: bytes) -> list[StreamRecord]:
        """Return the records that a serialised `PartialResultSet` completes.

        Raises SchemaError if the message or a record in it is not of the known form.
        """
        raise NotImplementedError

    @property
    def unfinished_bytes(self) -> int:
        """The size of the unfinished value; 0 if there is none."""
        return self._chunks.unfinished_bytes

    def end(self) -> None:
        """Check that the response did not stop in the middle of a value; raises SchemaError."""
        self._chunks.end()


class RowDecoder(Decoder):
    """Decodes responses whose rows have one column, each with one record."""

    def __init__(self) -> None:
        super().__init__()
        self._is_begun = False

    def decode(self, message: bytes) -> list[StreamRecord]:
        """Return the records that a message completes, as `Decoder` does."""
        metadata, values = self._chunks.take(message)
        if not self._is_begun and metadata:
            self._require_form(row_type(metadata))
            self._is_begun = True
        if values and not self._is_begun:
            raise SchemaError("a response begins without metadata")
        return [self._record(value) for value in values]

    def _require_form(self, columns: Any) -> None:
        """Raise SchemaError unless the row type is of this form."""
        raise NotImplementedError

    def _record(self, value: Serialised) -> StreamRecord:
        """Return the record of a row."""
        raise NotImplementedError


def merge(value: Value, rest: Value) -> None:
    """Append the rest of a chunked value, as PartialResultSet's `chunked_value` describes it.

    Strings and lists are joined; a list's last element continues in the next list's first if both
    are of such a kind.  Without recursion, because the sender decides how deeply values are nested.
    """
    while True:
        kind = value.WhichOneof("kind")
        if kind not in _MERGEABLE or kind != rest.WhichOneof("kind"):
            raise SchemaError("a chunked value continues as another kind", begun=str(kind))
        if kind == "string_value":
            value.string_value += rest.string_value
            return
        left, right = value.list_value.values, rest.list_value.values
        kinds = {element.WhichOneof("kind") for element in (*left[-1:], *right[:1])}
        if not left or not right or not kinds <= _MERGEABLE:
            left.extend(right)
            return
        last, first = left[-1], right[0]
        left.extend(right[1:])
        value, rest = last, first


def row_type(metadata: bytes) -> Any:
    """Return the row type of a serialised `ResultSetMetadata`; raises SchemaError otherwise."""
    try:
        return ResultSetMetadata.pb().FromString(metadata).row_type
    except DecodeError as error:
        raise SchemaError("a response's metadata cannot be read", cause=str(error)) from error
