"""Responses of table reads: rows as data change records, and keys as key ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tidegate.producer.backfill.read_partition import Key, KeyRanges, ReadPartition
from tidegate.producer.backfill.table_run import RunChunk
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn, StreamRecord
from tidegate.producer.spanner.decoding.proto_rows import plain, type_of
from tidegate.producer.spanner.decoding.response import (
    NULL,
    TEXT,
    Decoder,
    Serialised,
    content_of,
    parse_value,
    row_type,
)
from tidegate.schemas.avro_types import is_carried
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column
from tidegate.schemas.topics import beside

BACKFILL_TAG = "spanner-backfill"
"""The transaction tag of a row that was read from its table."""

_ROWS_IN_RECORD = 20
_ROWS_IN_CHUNK_RECORD = 50


class _Rows(Decoder):
    """Decodes rows, in the order of their keys.

    The rows of a record depend only on their place, so that a repeated read returns the same
    records.
    """

    def __init__(self, columns: Sequence[Column], *, read_ns: int) -> None:
        """`columns` are the columns to read, in their order."""
        super().__init__()
        self._read_ns = read_ns
        self._columns = tuple(
            RecordColumn(
                name=column.name,
                type=column.type,
                is_primary_key=column.key_position is not None,
                ordinal=column.ordinal,
            )
            for column in columns
        )
        self._keys = [column.name for column in self._columns if column.is_primary_key]
        self._cells: list[Serialised] = []
        self._mods: list[Mod] = []
        self._mods_bytes = 0
        self._rows = 0

    @property
    def columns(self) -> tuple[RecordColumn, ...]:
        """The columns to read, in their order."""
        return self._columns

    def decode(self, message: bytes) -> list[StreamRecord]:
        """Return the records that a serialised `PartialResultSet` completes."""
        metadata, values = self._chunks.take(message)
        if metadata:
            self._learn_types(row_type(metadata).fields)
        cells = [*self._cells, *values] if self._cells else values
        width = len(self._columns)
        end_of_rows = len(cells) - len(cells) % width
        records: list[StreamRecord] = []
        for start in range(0, end_of_rows, width):
            self._add(cells[start : start + width])
            if self._is_whole():
                records.append(self._record())
        self._cells = [bytes(cell) for cell in cells[end_of_rows:]]
        return records

    @property
    def unfinished_bytes(self) -> int:
        """The size of the unfinished row."""
        left = sum(map(len, self._cells))
        return self._chunks.unfinished_bytes + self._mods_bytes + left

    def end(self) -> None:
        """Check that the last row was complete; raises SchemaError."""
        self._chunks.end()
        if self._cells:
            raise SchemaError("a table read ended in the middle of a row")

    def _learn_types(self, fields: Sequence[Any]) -> None:
        """Use the response's types for columns with an unknown notation in the catalogue."""
        if len(fields) == len(self._columns):
            self._columns = tuple(
                column if is_carried(column.type) else replace(column, type=type_of(field.type_))
                for column, field in zip(self._columns, fields, strict=True)
            )

    def _is_whole(self) -> bool:
        """Whether the added rows make a record."""
        raise NotImplementedError

    def _record(self) -> DataChangeRecord:
        """Return the record of the added rows, and begin the next one."""
        raise NotImplementedError

    def _add(self, cells: Sequence[Serialised]) -> None:
        self._rows += 1
        row = {column.name: _plain(cell) for column, cell in zip(self._columns, cells, strict=True)}
        keys = {name: row.pop(name) for name in self._keys}
        self._mods.append(Mod(keys, row, {}))
        self._mods_bytes += sum(map(len, cells))

    def _record_of(
        self, table: str, transaction: str, *, number: int, records: int, is_last: bool
    ) -> DataChangeRecord:
        mods, self._mods, self._mods_bytes = tuple(self._mods), [], 0
        return DataChangeRecord(
            commit_timestamp_ns=self._read_ns,
            record_sequence=f"{number:08d}",
            server_transaction_id=transaction,
            is_last_record_in_transaction_in_partition=is_last,
            table_name=table,
            columns=self._columns,
            mods=mods,
            mod_type="INSERT",
            value_capture_type="NEW_ROW",
            number_of_records_in_transaction=records,
            number_of_partitions_in_transaction=1,
            transaction_tag=BACKFILL_TAG,
            is_system_transaction=False,
        )


class RowsDecoder(_Rows):
    """Decodes the rows of one read partition, which acts as the transaction of its records."""

    def __init__(
        self, read_partition: ReadPartition, columns: Sequence[Column], *, read_ns: int
    ) -> None:
        """`columns` are the columns to read, in their order."""
        super().__init__(columns, read_ns=read_ns)
        self._read_partition = read_partition
        self._records = -(-read_partition.rows // _ROWS_IN_RECORD)

    def end(self) -> None:
        """Check that all rows were returned; raises SchemaError."""
        self._chunks.end()
        if self._cells or self._rows != self._read_partition.rows:
            raise self._unexpected()

    def _is_whole(self) -> bool:
        return len(self._mods) == _ROWS_IN_RECORD or self._rows == self._read_partition.rows

    def _add(self, cells: Sequence[Serialised]) -> None:
        if self._rows == self._read_partition.rows:
            self._rows += 1
            raise self._unexpected()
        super()._add(cells)

    def _record(self) -> DataChangeRecord:
        read_partition = self._read_partition
        return self._record_of(
            read_partition.table,
            f"{BACKFILL_TAG}-{read_partition.number}",
            number=(self._rows - 1) // _ROWS_IN_RECORD,
            records=self._records,
            is_last=self._rows == read_partition.rows,
        )

    def _unexpected(self) -> SchemaError:
        message = "a table read returned another number of rows than the table had at this time"
        return SchemaError(
            message,
            table=self._read_partition.table,
            expected=self._read_partition.rows,
            found=self._rows,
        )


class ChunkDecoder(_Rows):
    """Decodes the rows of a chunk; each record is one transaction.

    The number of rows is known only at the end: `rest` returns those of the last record.
    """

    def __init__(self, place: RunChunk, columns: Sequence[Column]) -> None:
        """`columns` are the columns to read, in their order."""
        super().__init__(columns, read_ns=place.read_ns)
        self._place = place
        positions = {column.name: column.key_position or 0 for column in columns}
        self._in_key_order = sorted(self._keys, key=lambda name: positions[name])
        self._last: Mod | None = None

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return the record of the last rows, if any are left, and the last key.

        The key is None if the chunk has fewer rows than requested: the table ends here.
        """
        last = self._mods[-1] if self._mods else self._last
        records = [self._record()] if self._mods else []
        if last is None or self._rows < self._place.rows:
            return records, None
        return records, self._key_of(last)

    def _key_of(self, mod: Mod) -> Key:
        return tuple(mod.keys[name] for name in self._in_key_order)

    def _is_whole(self) -> bool:
        return len(self._mods) == _ROWS_IN_CHUNK_RECORD

    def _record(self) -> DataChangeRecord:
        place, number = self._place, (self._rows - 1) // _ROWS_IN_CHUNK_RECORD
        self._last = self._mods[-1]
        return self._record_of(
            beside(place.table),
            f"{BACKFILL_TAG}-{place.run}-{place.number}-{number:06d}",
            number=0,
            records=1,
            is_last=True,
        )


class BoostedDecoder(ChunkDecoder):
    """Decodes the rows of a chunk in any order; its keys were read before, in order."""

    def __init__(self, place: RunChunk, columns: Sequence[Column]) -> None:
        """`columns` are the columns to read, in their order."""
        super().__init__(place, columns)
        self._order: list[Key] = []

    @property
    def last_key(self) -> Key | None:
        """The last key; None without keys."""
        return self._order[-1] if self._order else None

    def expect(self, records: Iterable[StreamRecord]) -> None:
        """Add the next keys, as returned by a read of the key columns."""
        for record in records:
            if isinstance(record, DataChangeRecord):
                self._order += map(self._key_of, record.mods)

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return all records, and the last key; None if the table ends here."""
        order, rows = self._order, {self._key_of(mod): mod for mod in self._mods}
        if len(self._mods) != len(order) or rows.keys() != set(order):
            message = "the shares of a table read have other rows than the table had at this time"
            raise SchemaError(
                message, table=self._place.table, expected=len(order), found=len(self._mods)
            )
        records = []
        for start in range(0, len(order), _ROWS_IN_CHUNK_RECORD):
            self._mods = [rows[key] for key in order[start : start + _ROWS_IN_CHUNK_RECORD]]
            self._rows = start + len(self._mods)
            records.append(self._record())
        return records, None if len(order) < self._place.rows else self.last_key

    def _is_whole(self) -> bool:
        return False


class KeysDecoder(Decoder):
    """Adds the keys of a table to its key ranges; returns no record."""

    def __init__(self, ranges: KeyRanges, *, width: int) -> None:
        """`width` is the number of key columns."""
        super().__init__()
        self._ranges = ranges
        self._width = width
        self._cells: list[Serialised] = []

    def decode(self, message: bytes) -> list[StreamRecord]:
        """Count the keys of a serialised `PartialResultSet`."""
        _, values = self._chunks.take(message)
        cells = [*self._cells, *values] if self._cells else values
        width = self._width
        rows, row = len(cells) // width, 0
        while (step := self._ranges.rows_to_end()) <= rows - row:
            self._ranges.pass_over(step - 1)
            row += step
            self._ranges.end_at(tuple(map(_plain, cells[(row - 1) * width : row * width])))
        self._ranges.pass_over(rows - row)
        self._cells = [bytes(cell) for cell in cells[rows * width :]]
        return []

    @property
    def unfinished_bytes(self) -> int:
        """The size of the unfinished key."""
        return self._chunks.unfinished_bytes + sum(map(len, self._cells))

    def end(self) -> None:
        """Check that the last key was complete; raises SchemaError."""
        self._chunks.end()
        if self._cells:
            raise SchemaError("a table read ended in the middle of a row")


def _plain(cell: Serialised) -> Any:
    """Return a value as in the JSON of a data change record."""
    text = content_of(cell, TEXT)
    if text is not None:
        return str(text, "utf-8")
    return None if cell == NULL else plain(parse_value(cell))
