"""The simulated database's tables, whose columns come and go, and what a change of them says.

`as_json` is how a data change record holds a value, and `plain` what a reader of the topic gets, in
the form in which all values are compared (`tests.any_schema.values`).
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import fastavro

from tests.any_schema.values import plain, plain_key
from tidegate.producer.messages import ChangeMessage
from tidegate.producer.records import RecordColumn
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.wire_format import unframe

KEY = "Id"
_TYPES = ("INT64", "STRING", "BOOL", "BYTES")
_COLUMNS_MAX = 6
_TABLES_MAX = 4
_OF_TABLES = 0.3  # part of the changes that are about a whole table


_INSTANTS_FROM = datetime(2020, 2, 28, tzinfo=UTC)
_FRACTIONS_NS = (0, 120_000_000, 123_456_000, 123_456_789)


class InstantText(str):
    """A timestamp as a reader gets it from a stream that carries them as text."""

    __slots__ = ()


class SimTables:
    """Implements `ports.Catalogue`: the columns as they are now."""

    def __init__(
        self,
        names: list[str],
        random: Random,
        *,
        large_values: float = 0.0,
        timestamps: TimestampForm | None = None,
    ) -> None:
        """`timestamps` is how the stream carries them; without it no column is a TIMESTAMP."""
        self._random, self._large_values, self._timestamps = random, large_values, timestamps
        self._types = _TYPES if timestamps is None else ("INT64", "STRING", "TIMESTAMP", *_TYPES)
        self._tables = {name: self._first_columns(name) for name in names}
        self._dropped: set[str] = set()
        self._unchanging: set[str] = set()
        self._next = "d"  # the name of the next column; the gate's model of schemas counts letters

    @property
    def names(self) -> list[str]:
        return [name for name in self._tables if name not in self._dropped]

    @property
    def changing(self) -> list[str]:
        return [name for name in self.names if name not in self._unchanging]

    def schema(self, name: str) -> TableSchema:
        return TableSchema(name, tuple(self._tables[name]))

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        return None if name in self._dropped else self.schema(name)

    def describe(self, stream: str) -> Any:
        raise NotImplementedError("a worker asks only before it starts")

    def columns(self, name: str) -> list[str]:
        return [one.name for one in self._tables[name] if one.key_position is None]

    def alter(self) -> str:
        chance = self._random
        names = self.changing
        if chance.random() < _OF_TABLES:
            if len(names) > 1 and chance.random() < 0.5:
                return self.drop_table(chance.choice(names))
            if len(self._tables) < _TABLES_MAX:
                return self.add_table()
        return self._alter_columns(chance.choice(names))

    def _alter_columns(self, name: str) -> str:
        chance, columns = self._random, self._tables[name]
        is_full = len(columns) >= _COLUMNS_MAX or self._next > "z"
        if len(columns) > 3 and (is_full or chance.random() < 0.5):
            dropped = columns.pop(chance.randrange(1, len(columns)))
            return f"{name}: {dropped.name} dropped"
        if is_full:
            return "nothing changed"
        ordinal = max(column.ordinal for column in columns) + 1
        added = Column(self._next, ColumnType(chance.choice(self._types)), ordinal)
        self._next = chr(ord(self._next) + 1)
        columns.append(added)
        return f"{name}: {added.name} added"

    def add_table(self) -> str:
        name = f"t{len(self._tables)}"
        self._tables[name] = self._first_columns(name)
        return f"{name}: table added"

    def add_unchanging(self) -> str:
        """Add a table of which no row ever changes; return its name."""
        name = f"t{len(self._tables)}"
        self.add_table()
        self._unchanging.add(name)
        return name

    def add_beside(self, name: str) -> str:
        """Add a table that has the columns of another one, at any time; return its name."""
        beside = f"t{len(self._tables)}"
        self._tables[beside] = self._tables[name]
        self._unchanging.add(beside)
        return beside

    def drop_table(self, name: str) -> str:
        self._dropped.add(name)
        return f"{name}: table dropped"

    def value(self, table: str, column: str) -> Any:
        chance = self._random
        if chance.random() < 0.15:
            return None
        number = chance.randrange(100)
        size = 0
        if self._large_values and chance.random() < self._large_values:
            size = chance.choice((300, 700, 1_100, 1_900))
        of_type = {
            "INT64": number,
            "STRING": f"text {number}".ljust(size),
            "BOOL": number < 50,
            "BYTES": (b"%d" % number).ljust(size),
            "TIMESTAMP": self._instant(number),
        }
        return of_type[self._column(table, column).type.code]

    def key(self, table: str, number: int) -> dict[str, Any]:
        return {KEY: str(number)}

    def key_text(self, table: str, number: int) -> bytes:
        return b"%d" % number

    def plain(self, table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
        return plain_columns(columns, columns)

    def as_json(self, table: str, column: str, value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, datetime):
            return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
        if isinstance(value, InstantText):
            whole, _, fraction = value.removesuffix("Z").partition(".")
            # Spanner's digits come in groups of three.
            return (
                f"{whole}.{fraction.ljust(-(-len(fraction) // 3) * 3, '0')}Z" if fraction else value
            )
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def shown(self, table: str, columns: tuple[str, ...]) -> tuple[RecordColumn, ...]:
        return tuple(
            RecordColumn(one.name, one.type, one.key_position is not None, one.ordinal)
            for one in self._tables[table]
            if one.key_position is not None or one.name in columns
        )

    def _first_columns(self, name: str) -> list[Column]:
        others = (Column(name, ColumnType(self._types[n]), n + 2) for n, name in enumerate("abc"))
        return [Column(KEY, ColumnType("INT64"), 1, 1), *others]

    def _instant(self, number: int) -> datetime | InstantText:
        """Return a timestamp; one with nanoseconds only where the stream can carry it."""
        whole = _INSTANTS_FROM + timedelta(seconds=number * 7_919)
        fraction_ns = _FRACTIONS_NS[number % len(_FRACTIONS_NS)]
        if self._timestamps is not TimestampForm.STRING:
            return whole + timedelta(microseconds=fraction_ns // 1_000)
        digits = f".{fraction_ns:09d}".rstrip("0").removesuffix(".")
        return InstantText(f"{whole:%Y-%m-%dT%H:%M:%S}{digits}Z")

    def _column(self, table: str, name: str) -> Column:
        return next(one for one in self._tables[table] if one.name == name)


def key_text(key: Mapping[str, Any]) -> bytes:
    return plain_key_text({name: plain(value) for name, value in key.items()})


def plain_key_text(key: Mapping[str, Any]) -> bytes:
    """Return a key's plain values as the run's history has them.

    Zeros have no sign.  Of a table that was dropped before a worker knew it, no record says in
    which order the columns were, so they are in the order of their names.
    """
    parts = sorted((name.lower(), plain_key(value)) for name, value in key.items())
    return repr(parts if len(parts) > 1 else parts[0][1]).encode()


def plain_columns(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return these columns of a row, plain; their names without case, as Spanner compares them."""
    return {name.lower(): plain(row[name]) for name in names}


@dataclass(frozen=True, slots=True)
class Decoded:
    key: bytes
    mod: str
    columns: dict[str, Any]  # plain, without those of the key
    token: str = ""  # the one in the value; only older programs write it


class Decoder:
    """Reads data records as any consumer does: written under the schema that they name.

    With `reader_id` they are resolved to that schema, as a plain Avro reader does that has one
    schema for all values of a topic.
    """

    def __init__(self, registry: InMemorySchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, Any] = {}
        self._known: dict[tuple[int, int | None], tuple[ChangeMessage, Decoded]] = {}

    def __call__(self, message: ChangeMessage, *, reader_id: int | None = None) -> Decoded:
        place = id(message), reader_id
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = message, self._decoded(message, reader_id)
        return known[1]

    def key(self, framed: bytes) -> bytes:
        return key_text(self._read(framed, None))

    def _decoded(self, message: ChangeMessage, reader_id: int | None) -> Decoded:
        try:
            return self._decode(message, reader_id)
        except Exception as error:  # noqa: BLE001 - bytes that cannot be read are a finding
            return Decoded(message.key, "unreadable", {"error": f"{type(error).__name__}: {error}"})

    def _decode(self, message: ChangeMessage, reader_id: int | None) -> Decoded:
        key = self._read(message.key, None)
        value = self._read(message.value, reader_id)
        row, names = value["new_values"] or {}, value["new_columns"]
        if row and key_text({name: row[name] for name in key}) != key_text(key):
            return Decoded(key_text(key), "of another row", plain_columns(row, row))
        captured = (name for name in (row if names is None else names) if name not in key)
        token = value["source"]["partition_token"]
        columns = plain_columns(row, captured)
        return Decoded(key_text(key), value["mod_type"][0], columns, token)

    def _read(self, framed: bytes, reader_id: int | None) -> Any:
        schema_id, body = unframe(framed)
        reader = None if reader_id is None else self._schema(reader_id)
        return fastavro.schemaless_reader(io.BytesIO(body), self._schema(schema_id), reader)

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self._schemas:
            self._schemas[schema_id] = fastavro.parse_schema(self._registry.schema(schema_id))
        return self._schemas[schema_id]
