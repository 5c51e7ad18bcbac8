"""Tables, change streams and roles as values, independent of the statements that made them.

All are immutable; a schema change puts a new object in the catalogue, so that the holder of an old
one (a running commit, a change record) keeps a consistent state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from spanner_simulator.core.key_encoding import KeyPart, encode_key, table_prefix
from spanner_simulator.core.schema.statements import (
    Check,
    ColumnDefinition,
    Interleave,
    KeyColumn,
    ObjectKind,
    OptionValue,
    RowDeletionPolicy,
    Watch,
)
from spanner_simulator.core.values import Dialect, Row, Value, ValueType
from spanner_simulator.errors import failed_precondition, not_found

CaptureType = Literal["OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES"]
PartitionMode = Literal["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"]
DEFAULT_RETENTION = "7d"
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration_us(text: str) -> int:
    """Microseconds of a duration such as `36h`; FAILED_PRECONDITION when malformed."""
    # The service also rejects numbers with more digits.
    match = re.fullmatch(r"([0-9]{1,18})([smhd])", text)
    if match is None:
        raise failed_precondition(f"Invalid time duration format: {text}.")
    return int(match.group(1)) * _UNIT_S[match.group(2)] * 1_000_000


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index: its own key, then the table's key, and stored columns.

    A NULL_FILTERED one leaves out rows with NULL in one of its key columns.
    """

    name: str
    table: str
    key: tuple[KeyColumn, ...]
    storing: tuple[str, ...] = ()
    is_unique: bool = False
    is_null_filtered: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """A table; a column's ordinal is its place among the present columns, from 1 on.

    Compared by identity: it is a key of caches, and each schema change makes a new one.
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    key: tuple[KeyColumn, ...]
    interleave: Interleave | None = None
    row_deletion: RowDeletionPolicy | None = None
    checks: tuple[Check, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, ColumnDefinition]:
        """Columns by lower-case name."""
        return {column.name.lower(): column for column in self.columns}

    @cached_property
    def type_of(self) -> dict[str, ValueType]:
        """Types by exact column name."""
        return {column.name: column.value_type for column in self.columns}

    @cached_property
    def ordinal_of(self) -> dict[str, int]:
        """Ordinal position by exact column name."""
        return {column.name: place for place, column in enumerate(self.columns, start=1)}

    @cached_property
    def prefix(self) -> bytes:
        """The prefix of the table's keys in the keyspace."""
        return table_prefix(self.name)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Exact names of the key columns, in key order."""
        return tuple(part.name for part in self.key)

    @cached_property
    def key_parts(self) -> tuple[KeyPart, ...]:
        """The key parts for the key encoding."""
        return tuple(
            KeyPart(self.column(part.name).value_type, part.descending, part.null_is_greatest)
            for part in self.key
        )

    @cached_property
    def value_names(self) -> frozenset[str]:
        """Exact names of the columns outside the key."""
        return frozenset(column.name for column in self.columns) - set(self.key_names)

    def column(self, name: str) -> ColumnDefinition:
        """A column by name in any case; NOT_FOUND otherwise."""
        column = self.by_name.get(name.lower())
        if column is None:
            raise not_found(f"Column not found in table {self.name}: {name}")
        return column

    def encoded_key(self, row: Row) -> bytes:
        """The encoded key of a row."""
        return encode_key(self.prefix, self.key_parts, [row.get(name) for name in self.key_names])

    def encoded_key_of(self, values: list[Value]) -> bytes:
        """The same for key values in key order; fewer than all make a prefix."""
        return encode_key(self.prefix, self.key_parts, values)


@dataclass(frozen=True)
class ChangeStream:
    """A change stream's definition; with `watch` None it exists and watches nothing.

    `default_retention` applies where the option retention_period is not set.
    """

    name: str
    created_us: int
    watch: Watch | None
    options: tuple[tuple[str, OptionValue], ...] = ()
    default_retention: str = DEFAULT_RETENTION
    _tracked: dict[Table, tuple[str, ...] | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    def option(self, name: str) -> OptionValue:
        """An option that was set explicitly, otherwise None."""
        return dict(self.options).get(name)

    @cached_property
    def capture_type(self) -> CaptureType:
        """The value capture type, or its default."""
        match self.option("value_capture_type"):
            case "NEW_ROW":
                return "NEW_ROW"
            case "NEW_VALUES":
                return "NEW_VALUES"
            case "NEW_ROW_AND_OLD_VALUES":
                return "NEW_ROW_AND_OLD_VALUES"
            case _:
                return "OLD_AND_NEW_VALUES"

    @cached_property
    def retention_us(self) -> int:
        """How long records can be read."""
        return duration_us(str(self.option("retention_period") or self.default_retention))

    @cached_property
    def excluded_mod_types(self) -> frozenset[str]:
        """The mod types that exclude_insert, exclude_update and exclude_delete leave out."""
        return frozenset(
            kind
            for kind in ("INSERT", "UPDATE", "DELETE")
            if self.option(f"exclude_{kind.lower()}") is True
        )

    @property
    def excludes_ttl_deletes(self) -> bool:
        """Whether deletes by a row deletion policy are left out."""
        return self.option("exclude_ttl_deletes") is True

    @property
    def allows_txn_exclusion(self) -> bool:
        """Whether a transaction may exclude itself (exclude_txn_from_change_streams)."""
        return self.option("allow_txn_exclusion") is True

    @property
    def partition_mode(self) -> PartitionMode:
        """How stream partitions succeed each other; fixed when the stream is created."""
        if self.option("partition_mode") == "MUTABLE_KEY_RANGE":
            return "MUTABLE_KEY_RANGE"
        return "IMMUTABLE_KEY_RANGE"

    def read_function(self, dialect: Dialect) -> str:
        """The name of its read function, without PostgreSQL's schema `spanner`."""
        if dialect == "GOOGLE_STANDARD_SQL":
            return f"READ_{self.name}"
        is_mutable = self.partition_mode == "MUTABLE_KEY_RANGE"
        return f"{'read_proto_bytes' if is_mutable else 'read_json'}_{self.name}"

    def tracked_columns(self, table: Table) -> tuple[str, ...] | None:
        """The tracked non-key columns, in ordinal order; None if the table is not watched.

        Generated columns never are.
        """
        if table not in self._tracked:
            self._tracked[table] = self._find_tracked(table)
        return self._tracked[table]

    def _find_tracked(self, table: Table) -> tuple[str, ...] | None:
        if self.watch is None:
            return None
        every = tuple(
            column.name
            for column in table.columns
            if column.name in table.value_names and column.generated is None
        )
        if self.watch.everything:
            return every
        for name, columns in self.watch.tables:
            if name.lower() == table.name.lower():
                if columns is None:
                    return every
                wanted = {column.lower() for column in columns}
                return tuple(column for column in every if column.lower() in wanted)
        return None


@dataclass(frozen=True, slots=True)
class Role:
    """A database role with its direct privileges: (kind, object in lower case, privilege)."""

    name: str
    privileges: frozenset[tuple[ObjectKind, str, str]] = frozenset()
