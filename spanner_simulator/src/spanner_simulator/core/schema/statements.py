"""DDL statements as values: what a statement asks for, in whichever dialect it was written.

They know no catalogue; names are checked when a statement is applied. A name in a named schema is
written `schema.name`; PostgreSQL's `public` is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from spanner_simulator.core.schema.definitions import (
    Check,
    ForeignKey,
    Interleave,
    OnDelete,
    RowDeletionPolicy,
    ViewSecurity,
)
from spanner_simulator.core.values import ValueType

OptionValue: TypeAlias = "str | bool | int | None"
ObjectKind = Literal["TABLE", "VIEW", "SCHEMA", "CHANGE STREAM", "TABLE FUNCTION", "ROLE"]
NullsOrder = Literal["FIRST", "LAST"]


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
    """One part of a key.

    `nulls` None is GoogleSQL's order: NULL is the smallest value. PostgreSQL's indexes say where
    it stands, by default LAST ascending and FIRST descending.
    """

    name: str
    descending: bool = False
    nulls: NullsOrder | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE."""

    name: str
    columns: tuple[ColumnDefinition, ...]
    key: tuple[KeyColumn, ...]
    if_not_exists: bool = False
    interleave: Interleave | None = None
    row_deletion: RowDeletionPolicy | None = None
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE."""

    name: str
    if_exists: bool = False


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
class ReplaceColumn:
    """ALTER TABLE .. ALTER COLUMN c T [NOT NULL] [DEFAULT ..] of GoogleSQL: a whole definition.

    `has_options` tells OPTIONS left out, which keeps them, from options reset.
    """

    table: str
    column: ColumnDefinition
    has_options: bool = False


@dataclass(frozen=True, slots=True)
class AlterColumnType:
    """ALTER TABLE .. ALTER COLUMN c TYPE t of PostgreSQL: nothing else of the column changes."""

    table: str
    column: str
    value_type: ValueType


@dataclass(frozen=True, slots=True)
class SetColumnDefault:
    """ALTER TABLE .. ALTER COLUMN c SET DEFAULT, or DROP DEFAULT when None."""

    table: str
    column: str
    default: str | None


@dataclass(frozen=True, slots=True)
class SetColumnNullable:
    """ALTER TABLE .. ALTER COLUMN c SET NOT NULL, or DROP NOT NULL, of PostgreSQL."""

    table: str
    column: str
    is_nullable: bool


@dataclass(frozen=True, slots=True)
class SetColumnOptions:
    """ALTER TABLE .. ALTER COLUMN c SET OPTIONS (allow_commit_timestamp = ..)."""

    table: str
    column: str
    commit_timestamp: bool


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """ALTER TABLE .. ADD [CONSTRAINT n] FOREIGN KEY or CHECK."""

    table: str
    constraint: ForeignKey | Check


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """ALTER TABLE .. DROP CONSTRAINT."""

    table: str
    name: str


@dataclass(frozen=True, slots=True)
class SetRowDeletion:
    """ALTER TABLE .. ADD, REPLACE or DROP ROW DELETION POLICY; the TTL of PostgreSQL."""

    table: str
    action: Literal["ADD", "REPLACE", "DROP"]
    policy: RowDeletionPolicy | None = None


@dataclass(frozen=True, slots=True)
class SetOnDelete:
    """ALTER TABLE .. SET ON DELETE, of an interleaved table."""

    table: str
    on_delete: OnDelete


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE INDEX; `not_null` are the columns of its WHERE .. IS NOT NULL."""

    name: str
    table: str
    key: tuple[KeyColumn, ...]
    storing: tuple[str, ...] = ()
    is_unique: bool = False
    is_null_filtered: bool = False
    interleave_in: str | None = None
    not_null: tuple[str, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterIndex:
    """ALTER INDEX .. ADD or DROP STORED COLUMN."""

    name: str
    action: Literal["ADD", "DROP"]
    column: str


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW."""

    name: str
    query: str
    security: ViewSecurity
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """CREATE SCHEMA."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSchema:
    """DROP SCHEMA."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateProtoBundle:
    """CREATE PROTO BUNDLE; the descriptors of the types come beside the statement."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AlterProtoBundle:
    """ALTER PROTO BUNDLE .. INSERT, UPDATE and DELETE."""

    inserted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropProtoBundle:
    """DROP PROTO BUNDLE."""


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """ALTER DATABASE .. SET OPTIONS; None resets one. The name of the database is not checked."""

    database: str
    options: tuple[tuple[str, OptionValue], ...]


@dataclass(frozen=True, slots=True)
class Analyze:
    """ANALYZE: accepted, and without effect where nothing keeps statistics."""


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
class DropStream:
    """DROP CHANGE STREAM."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateRole:
    """CREATE ROLE."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropRole:
    """DROP ROLE."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """GRANT or REVOKE; the privilege of a role membership is MEMBER.

    A read function is named as in a query, without PostgreSQL's schema: `READ_s`, `read_json_s`.
    """

    revoke: bool
    privileges: tuple[str, ...]
    kind: ObjectKind
    objects: tuple[str, ...]
    roles: tuple[str, ...]


Statement: TypeAlias = (
    CreateTable
    | DropTable
    | AddColumn
    | DropColumn
    | ReplaceColumn
    | AlterColumnType
    | SetColumnDefault
    | SetColumnNullable
    | SetColumnOptions
    | AddConstraint
    | DropConstraint
    | SetRowDeletion
    | SetOnDelete
    | CreateIndex
    | AlterIndex
    | DropIndex
    | CreateView
    | DropView
    | CreateSchema
    | DropSchema
    | CreateProtoBundle
    | AlterProtoBundle
    | DropProtoBundle
    | AlterDatabase
    | Analyze
    | CreateStream
    | AlterStreamWatch
    | AlterStreamOptions
    | DropStream
    | CreateRole
    | DropRole
    | Grant
)
