"""The rows of change streams as bytes, in the form for the dialect and the partition mode.

A record is usually read by several queries and always read again after a resume, so its bytes are
cached: in blocks per stream partition, of which the least recently used are dropped when all of
them together exceed a bound.  Rows that are not records of a stream partition are small and encoded
when sent.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import Protocol

from spanner_simulator.core.change_streams.records import StreamRow
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.schema.schema_objects import ChangeStream
from spanner_simulator.core.values import Dialect
from spanner_simulator.server.encoding.change_rows_json import JsonRows
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows
from spanner_simulator.server.encoding.change_rows_struct import StructRows

_BLOCK_ROWS = 256
KEPT_BYTES_MAX = 256 * 1024 * 1024


class RowForm(Protocol):
    """One way to write rows; `metadata` is a serialised ResultSetMetadata."""

    @property
    def metadata(self) -> bytes:
        """The metadata of a result's first message."""
        ...

    def encode(self, row: StreamRow) -> bytes:
        """The row as the `values` field of a PartialResultSet."""
        ...


class _Block:
    """The bytes of consecutive records; `ends` are their ends in `data`."""

    __slots__ = ("data", "ends", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.data = bytearray()
        self.ends = array("Q")

    @property
    def end(self) -> int:
        """The index of the record to encode next."""
        return self.first + len(self.ends)

    def cut(self, start: int, stop: int, size_max: int) -> tuple[bytes, int]:
        """Rows from `start` on, up to `stop` or the size; and the index of the next one."""
        low = start - self.first
        begin = self.ends[low - 1] if low else 0
        count = bisect_right(self.ends, begin + size_max, low, stop - self.first) - low
        if count == 0:
            return b"", start
        return bytes(self.data[begin : self.ends[low + count - 1]]), start + count


class ChangeRowEncoder:
    """Encodes and caches the rows of the change streams of one database."""

    def __init__(self, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self.kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max
        self._blocks: OrderedDict[tuple[str, int], _Block] = OrderedDict()
        self._forms: dict[tuple[str, Dialect, bool], RowForm] = {}

    def form(self, stream: ChangeStream, dialect: Dialect) -> RowForm:
        """The form of a change stream's rows."""
        function = stream.read_function(dialect)
        key = (function, dialect, (stream.partition_mode == "MUTABLE_KEY_RANGE"))
        if key not in self._forms:
            if stream.partition_mode == "MUTABLE_KEY_RANGE":
                column = function if dialect == "POSTGRESQL" else "ChangeRecord"
                self._forms[key] = ProtoRows(column, dialect)
            elif dialect == "POSTGRESQL":
                self._forms[key] = JsonRows(function)
            else:
                self._forms[key] = StructRows()
        return self._forms[key]

    def records(
        self, form: RowForm, partition: StreamPartition, numbers: range, *, size_max: int
    ) -> tuple[bytes, int]:
        """Records of a stream partition as one run of rows, and the index of the next one.

        At least one row, then as many as `size_max` bytes allow: only a single row is ever larger.
        """
        parts: list[bytes] = []
        size, index = 0, numbers.start
        while index < numbers.stop and size < size_max:
            stop = min(numbers.stop, (index // _BLOCK_ROWS + 1) * _BLOCK_ROWS)
            block = self._block(form, partition, index, stop, size_max=size_max - size)
            stop = min(stop, block.end)
            part, after = block.cut(index, stop, size_max - size)
            if after == index and not parts:
                part, after = block.cut(index, index + 1, len(block.data))
            parts.append(part)
            size += len(part)
            index = after
            if after < stop:
                break
        return b"".join(parts), index

    def _block(
        self,
        form: RowForm,
        partition: StreamPartition,
        index: int,
        stop: int,
        *,
        size_max: int | None = None,
    ) -> _Block:
        """A block that holds the records from `index` up to `stop`.

        Or fewer, but at least one, if more than `size_max` bytes of them were still to be encoded:
        rows may be large, and all other calls wait while they are encoded.
        """
        key = (partition.token, index // _BLOCK_ROWS)
        block = self._blocks.get(key)
        if block is not None and block.end < partition.records.first:
            # Missing records have partly expired: start again with the remaining ones.
            self.kept_bytes -= len(self._blocks.pop(key).data)
            block = None
        if block is None:
            first = max(key[1] * _BLOCK_ROWS, partition.records.first)
            block = self._blocks[key] = _Block(first)
        else:
            self._blocks.move_to_end(key)
        missing = block.end
        if missing < stop:
            before = len(block.data)
            for record in partition.records.span(missing, stop):
                is_enough = size_max is not None and len(block.data) - before > size_max
                if is_enough and block.end > index:
                    break
                block.data += form.encode(record)
                block.ends.append(len(block.data))
            self.kept_bytes += len(block.data) - before
            while self.kept_bytes > self._kept_bytes_max and len(self._blocks) > 1:
                _, dropped = self._blocks.popitem(last=False)
                self.kept_bytes -= len(dropped.data)
        return block
