"""DDL statements as values: what a statement asks for, in whichever dialect it was written.

They know no catalogue; names are checked when a statement is applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.values import ValueType

__all__ = [
    "AddColumn",
    "AlterStreamOptions",
    "AlterStreamWatch",
    "ColumnDefinition",
    "CreateRole",
    "CreateStream",
    "CreateTable",
    "DropColumn",
    "DropRole",
    "DropStream",
    "DropTable",
    "Grant",
    "KeyColumn",
    "ObjectKind",
    "OptionValue",
    "Statement",
    "Watch",
]

OptionValue: TypeAlias = "str | bool | int | None"
ObjectKind = Literal["TABLE", "CHANGE STREAM", "TABLE FUNCTION", "ROLE"]


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
    """One part of a primary key."""

    name: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE."""

    name: str
    columns: tuple[ColumnDefinition, ...]
    key: tuple[KeyColumn, ...]
    if_not_exists: bool = False


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
    """ALTER CHANGE STREAM .. SET OPTIONS."""

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


@dataclass(frozen=True, slots=True)
class DropRole:
    """DROP ROLE."""

    name: str


@dataclass(frozen=True, slots=True)
class Grant:
    """GRANT or REVOKE; the privilege of a role membership is MEMBER."""

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
    | CreateStream
    | AlterStreamWatch
    | AlterStreamOptions
    | DropStream
    | CreateRole
    | DropRole
    | Grant
)
