"""A source's description: a change stream, whether Tidegate can read it, and its objects.

Pure: an adapter reads it.  A stream with an unsupported feature is rejected, and all faults are
reported together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.schemas.change_schema import EXCLUSIONS, key_schema, value_schema
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.tables import TableSchema

GOOGLE_SQL = "GOOGLE_STANDARD_SQL"
POSTGRESQL = "POSTGRESQL"
DIALECTS = (GOOGLE_SQL, POSTGRESQL)
"""The dialects that Tidegate reads, as named in `database_options`."""

IMMUTABLE_KEY_RANGE = "IMMUTABLE_KEY_RANGE"
MUTABLE_KEY_RANGE = "MUTABLE_KEY_RANGE"
_PARTITION_MODES = (IMMUTABLE_KEY_RANGE, MUTABLE_KEY_RANGE)
_CAPTURE_TYPES = ("OLD_AND_NEW_VALUES", "NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
_RETENTION = re.compile(r"([0-9]{1,9})([smhd])")
_CLOCKS_DIFFER_NS = 60_000_000_000
"""How far a start may be ahead of the service's clock, because the host that chose it has another
one."""
_RETENTION_DEFAULT = "7d"
"""The default since May 2026, also for older streams; Google's emulator still keeps one day."""
_UNIT_NS = {
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A change stream and the tables that it watches."""

    name: str
    dialect: str
    exists: bool
    others: tuple[str, ...]
    """The names of all change streams of the database."""
    watches_all: bool
    options: Mapping[str, str]
    """Only the options that were set; the others have Spanner's defaults."""
    tables: tuple[TableSchema, ...]

    @property
    def filters(self) -> tuple[str, ...]:
        """The options that leave changes out, as recorded in `StreamStarted`."""
        return tuple(f"{name}=true" for name in filters_of(self.options))

    @property
    def value_capture_type(self) -> str:
        """The default value capture type of its records; each record contains its own."""
        return self.options.get("value_capture_type", _CAPTURE_TYPES[0])

    @property
    def partition_mode(self) -> str:
        """Whether a stream partition keeps the same keys for its lifetime; fixed at creation."""
        return self.options.get("partition_mode", IMMUTABLE_KEY_RANGE).upper()

    @property
    def retention_us(self) -> int:
        """How long it keeps changes, in microseconds."""
        period_ns = retention_ns(self.options.get("retention_period", _RETENTION_DEFAULT))
        return (period_ns or 0) // NS_PER_US

    @property
    def has_key_moves(self) -> bool:
        """Whether keys move between stream partitions that continue."""
        return self.partition_mode == MUTABLE_KEY_RANGE

    def faults(self, *, has_begun: bool = False) -> list[str]:
        """Return everything that keeps Tidegate from reading this stream, each with its fix.

        With `has_begun`, the stream's tables are not checked: they may have been added, changed or
        dropped since, and only records of those that cannot be published are rejected.
        """
        if self.dialect not in DIALECTS:
            fault = f"its dialect is {self.dialect}, which is not supported"
            return [f"database: {fault}: use a database of the dialect {' or '.join(DIALECTS)}"]
        if not self.exists:
            names = ", ".join(self.others) or "none"
            fault = f"the database has no change stream {self.name} (it has: {names})"
            create = f"CREATE CHANGE STREAM {self._quoted} FOR ALL"
            return [f"change_stream: {fault}: set one of these, or create it: {create}"]
        faults = []
        if self.partition_mode not in _PARTITION_MODES:
            modes = " or ".join(self._option("partition_mode", mode) for mode in _PARTITION_MODES)
            faults.append(
                f"change_stream: partition_mode {self.partition_mode} is not known: "
                f"create a stream with {modes}"
            )
        if _is_true(self.options, "per_placement_tvf"):
            faults.append(
                "change_stream: per_placement_tvf is not supported: create a stream without it"
            )
        if self.value_capture_type not in _CAPTURE_TYPES:
            faults.append(
                f"change_stream: value_capture_type {self.value_capture_type} is not known: "
                f"use one of {', '.join(_CAPTURE_TYPES)}"
            )
        if not self.watches_all and not self.tables and not has_begun:
            alter = f"ALTER CHANGE STREAM {self._quoted} SET FOR …"
            faults.append(f"change_stream: it watches no table: type {alter}")
        for table in () if has_begun else self.tables:
            watched = tuple(c for c in table.columns if c.is_watched or c.key_position is not None)
            try:
                key_schema(table.name, table)
                value_schema(table.name, replace(table, columns=watched))
            except SchemaError as error:
                faults.append(f"table {table.name}: {error}; or do not watch this table")
        return faults

    @property
    def _quoted(self) -> str:
        """The name as written in DDL: PostgreSQL folds a name to lower case unless it is quoted."""
        is_folded = self.dialect == POSTGRESQL and self.name != self.name.lower()
        return f'"{self.name}"' if is_folded else self.name

    def _option(self, name: str, value: str) -> str:
        """Return the clause of DDL that sets an option, in the database's dialect."""
        return f"{'WITH' if self.dialect == POSTGRESQL else 'OPTIONS'} ({name} = '{value}')"


def filters_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of a change stream that leave changes out."""
    return tuple(name for name in EXCLUSIONS if _is_true(options, name))


def _is_true(options: Mapping[str, str], option: str) -> bool:
    return options.get(option, "").lower() == "true"


def check_stream(description: StreamDescription, *, has_begun: bool = False) -> None:
    """Raise ConfigError, with a line for every fault and its fix, if the stream cannot be read."""
    faults = description.faults(has_begun=has_begun)
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise ConfigError(f"the change stream cannot be read:{lines}")


def retention_ns(text: str) -> int | None:
    """Return a `retention_period` such as `36h` in nanoseconds; None if it cannot be parsed."""
    match = _RETENTION.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_NS[match[2]]


def check_start(description: StreamDescription, *, start_ns: int, now_ns: int) -> None:
    """Raise ConfigError for a start in the future, or before the stream's retention.

    `now_ns` is the service's time.  The retention is known only where it was set: its default has
    changed, and only the service knows it.
    """
    if start_ns > now_ns + _CLOCKS_DIFFER_NS:
        raise ConfigError(
            "start: it is later than now, so that there is nothing to read",
            hint='Choose a start that has passed, or "now"',
            start=format_rfc3339(start_ns),
            now=format_rfc3339(now_ns),
        )
    period_ns = retention_ns(description.options.get("retention_period", ""))
    if period_ns is not None and start_ns < now_ns - period_ns:
        raise ConfigError(
            "start: changes before the stream's retention cannot be read any more",
            hint="Choose a later start",
            start=format_rfc3339(start_ns),
            earliest=format_rfc3339(now_ns - period_ns),
        )


@dataclass(frozen=True, slots=True)
class SourceField:
    """A column of an object."""

    name: str
    type: str
    """Spanner's name of the type, or Datastream's unified type."""
    nullable: bool | None
    """None if the source does not say."""
    key_position: int | None = None
    """Position in the primary key, from 1; None outside of it."""
    watched_by: tuple[str, ...] = ()
    """With Spanner: the change streams that capture it."""


@dataclass(frozen=True, slots=True)
class SourceObject:
    """A table, or another kind of object with rows."""

    name: str
    """Its names joined by dots, the outermost first."""
    fields: tuple[SourceField, ...]
    watched_by: tuple[str, ...] = ()
    """With Spanner: the change streams that watch it."""
    files_read: int = 0
    """With Datastream: the number of files read."""
    events: Mapping[str, int] = field(default_factory=dict)
    """With Datastream: the number of events of each change type in the files read."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key, in its order."""
        keyed = [field for field in self.fields if field.key_position is not None]
        return tuple(
            field.name for field in sorted(keyed, key=lambda field: field.key_position or 0)
        )


@dataclass(frozen=True, slots=True)
class Discovery:
    """All objects of a source."""

    kind: str
    """`spanner`, or the kind of the source that Datastream reads."""
    source: str
    """The database, or the location of the files."""
    streams: tuple[str, ...]
    """The change streams of the database, or the Datastream streams that wrote the files."""
    objects: tuple[SourceObject, ...]
    notes: tuple[str, ...] = ()
    """Notes for the reader of the list, one sentence each."""
