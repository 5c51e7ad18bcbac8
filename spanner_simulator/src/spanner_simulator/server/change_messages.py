"""The messages of one change stream query: rows cut to size, each message with its token.

A resume token identifies its query and that query's progress, down to the piece of a row that is
too large for one message; so the same statement with that token continues right after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import StreamRow
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.change_streams.stream_query import Position
from spanner_simulator.errors import invalid_argument
from spanner_simulator.server.chunks import pieces_of
from spanner_simulator.server.encoding.change_rows import ChangeRowEncoder, RowForm
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.wire_bytes import message_bytes, plain_bytes, row_bytes

# A message has at most a mebibyte; this leaves room for metadata and token.
_MESSAGE_BYTES_MAX = 1_000_000
_TOKEN_PARTS = 6


class ChangeMessages:
    """Cuts rows into messages and numbers them; `position` is before the next row."""

    def __init__(self, encoder: ChangeRowEncoder, form: RowForm, query: str) -> None:
        """`query` is the part that a resumed statement must share with the first one."""
        self.position = Position(0, 0, 0)
        self.has_sent = False
        self._encoder = encoder
        self._form = form
        self._digest = zlib.crc32(query.encode())

    def parse_resume_token(self, token: bytes) -> Position | None:
        """The position of an earlier message of the same query; INVALID_ARGUMENT otherwise."""
        if not token:
            return None
        parts = token.split(b".")
        if (
            len(parts) == _TOKEN_PARTS
            and parts[0] == b"cs"
            and all(part.isdigit() and len(part) < 20 for part in parts[1:])
            and int(parts[1]) == self._digest
        ):
            return Position(*(int(part) for part in parts[2:]))
        raise invalid_argument("Invalid resume_token: it belongs to another query.")

    def records(self, partition: StreamPartition, numbers: range) -> Iterator[bytes]:
        """Messages with records of a stream partition."""
        index = numbers.start
        while index < numbers.stop:
            rows, after = self._encoder.records(
                self._form, partition, range(index, numbers.stop), size_max=_MESSAGE_BYTES_MAX
            )
            position = self.position.after_data(after - index)
            index = after
            if len(rows) > _MESSAGE_BYTES_MAX:
                yield from self._pieces(rows, position)
            else:
                self.position = position
                yield self._message([rows])

    def rows(self, rows: Sequence[StreamRow]) -> Iterator[bytes]:
        """Messages with other rows."""
        pending: list[bytes] = []
        size = 0
        for row in rows:
            encoded = self._form.encode(row)
            if pending and size + len(encoded) > _MESSAGE_BYTES_MAX:
                yield self._message(pending)
                pending, size = [], 0
            pending.append(encoded)
            size += len(encoded)
            self.position = self.position.after(row)
        if pending:
            yield self._message(pending)

    def _pieces(self, row: bytes, after: Position) -> Iterator[bytes]:
        """A row that is too large for one message, from its next piece on."""
        (value,) = spanner.PartialResultSet.pb().FromString(row).values
        pieces = pieces_of(plain_of(value), _MESSAGE_BYTES_MAX)
        start = self.position
        for number in range(start.chunk, len(pieces)):
            is_last = number == len(pieces) - 1
            self.position = (
                after
                if is_last
                else Position(start.data_index, start.child_index, start.serial, number + 1)
            )
            encoded = row_bytes([plain_bytes(pieces[number])])
            yield self._message([encoded], is_chunked=not is_last)

    def empty(self) -> bytes:
        """A message without rows, because even an empty answer carries metadata."""
        return self._message([])

    def _message(self, rows: list[bytes], *, is_chunked: bool = False) -> bytes:
        position = self.position
        token = b"cs.%d.%d.%d.%d.%d" % (
            self._digest,
            position.data_index,
            position.child_index,
            position.serial,
            position.chunk,
        )
        metadata = None if self.has_sent else self._form.metadata
        self.has_sent = True
        return message_bytes(rows, metadata=metadata, is_chunked=is_chunked, resume_token=token)
