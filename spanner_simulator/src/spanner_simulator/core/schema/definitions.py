"""Parts of tables and views that a statement defines and that an object then has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OnDelete = Literal["CASCADE", "NO ACTION"]
ViewSecurity = Literal["INVOKER", "DEFINER"]


@dataclass(frozen=True, slots=True)
class Interleave:
    """A table's place below another one; only IN PARENT demands that the parent row exists."""

    parent: str
    in_parent: bool = True
    on_delete: OnDelete = "NO ACTION"


@dataclass(frozen=True, slots=True)
class RowDeletionPolicy:
    """Rows go some time after the timestamp column was this many days old."""

    column: str
    older_than_days: int


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns whose values must exist in another table, unless one of them is NULL."""

    name: str
    columns: tuple[str, ...]
    referenced_table: str
    referenced_columns: tuple[str, ...]
    on_delete: OnDelete = "NO ACTION"
    is_enforced: bool = True
    is_named: bool = True
    """False: the name was made up, and GetDatabaseDdl does not print it."""


@dataclass(frozen=True, slots=True)
class Check:
    """An expression over a row's columns that must not be false; `is_named` as in ForeignKey."""

    name: str
    expression: str
    is_named: bool = True
