"""DDL statements as values: what a statement asks for, in whichever dialect it was written.

They know no catalogue; names are checked when a statement is applied. A name in a named schema is
written `schema.name`; PostgreSQL's `public` is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from spanner_simulator.core.values import ValueType

OptionValue: TypeAlias = "str | bool | int | None"
DropKind = Literal["TABLE", "INDEX", "CHANGE STREAM", "ROLE"]
DROPPABLE: tuple[DropKind, ...] = ("TABLE", "INDEX", "CHANGE STREAM", "ROLE")
OnDelete = Literal["CASCADE", "NO ACTION"]
ObjectKind = Literal["TABLE", "SCHEMA", "CHANGE STREAM", "TABLE FUNCTION"]


@dataclass(frozen=True, slots=True)
class Interleave:
    """The table whose rows hold a table's rows, and what becomes of them without it."""

    parent: str
    on_delete: OnDelete = "NO ACTION"


@dataclass(frozen=True, slots=True)
class RowDeletionPolicy:
    """Rows go some time after the timestamp column was this many days old."""

    column: str
    older_than_days: int


@dataclass(frozen=True, slots=True)
class Check:
    """An expression over a row's columns that must not be false.

    `is_named` False: the name was made up when the table was, and GetDatabaseDdl leaves it out.
    """

    name: str
    expression: str
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column; `commit_timestamp` is the option allow_commit_timestamp.

    `default` and `generated` are expressions as written; a generated column that is not stored is
    computed when it is read.
    """

    name: str
    value_type: ValueType
    is_nullable: bool = True
    commit_timestamp: bool = False
    default: str | None = None
    generated: str | None = None
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One part of a key; NULL is the greatest value in PostgreSQL's indexes, else the smallest."""

    name: str
    descending: bool = False
    null_is_greatest: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE."""

    name: str
    columns: tuple[ColumnDefinition, ...]
    key: tuple[KeyColumn, ...]
    if_not_exists: bool = False
    interleave: Interleave | None = None
    row_deletion: RowDeletionPolicy | None = None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ALTER TABLE .. ADD COLUMN."""

    table: str
    column: ColumnDefinition
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """ALTER TABLE .. DROP COLUMN."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class AlterColumn:
    """ALTER TABLE .. ALTER COLUMN; `changes` are those fields of its definition that it names."""

    table: str
    column: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SetRowDeletion:
    """ALTER TABLE .. ADD, REPLACE or DROP ROW DELETION POLICY; the TTL of PostgreSQL."""

    table: str
    action: Literal["ADD", "REPLACE", "DROP"]
    policy: RowDeletionPolicy | None = None


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE INDEX."""

    name: str
    table: str
    key: tuple[KeyColumn, ...]
    storing: tuple[str, ...] = ()
    is_unique: bool = False
    is_null_filtered: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """CREATE SCHEMA."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateProtoBundle:
    """CREATE PROTO BUNDLE; the descriptors of the types come beside the statement."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Watch:
    """A FOR clause: everything, or tables with their columns (None: the whole table)."""

    everything: bool = False
    tables: tuple[tuple[str, tuple[str, ...] | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE CHANGE STREAM; no FOR clause watches nothing."""

    name: str
    watch: Watch | None
    options: tuple[tuple[str, OptionValue], ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterStreamWatch:
    """ALTER CHANGE STREAM .. SET FOR, or DROP FOR ALL when `watch` is None."""

    name: str
    watch: Watch | None


@dataclass(frozen=True, slots=True)
class AlterStreamOptions:
    """ALTER CHANGE STREAM .. SET OPTIONS; None resets one, as RESET of PostgreSQL does."""

    name: str
    options: tuple[tuple[str, OptionValue], ...]


@dataclass(frozen=True, slots=True)
class CreateRole:
    """CREATE ROLE."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP of a table, an index, a change stream or a role."""

    kind: DropKind
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """GRANT or REVOKE.

    A read function is named as in a query, without PostgreSQL's schema: `READ_s`, `read_json_s`.
    """

    revoke: bool
    privileges: tuple[str, ...]
    kind: ObjectKind
    objects: tuple[str, ...]
    roles: tuple[str, ...]


Statement: TypeAlias = (
    CreateTable
    | AddColumn
    | DropColumn
    | AlterColumn
    | SetRowDeletion
    | CreateIndex
    | CreateSchema
    | CreateProtoBundle
    | CreateStream
    | AlterStreamWatch
    | AlterStreamOptions
    | CreateRole
    | Drop
    | Grant
)
