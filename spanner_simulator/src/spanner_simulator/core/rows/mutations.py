"""Mutations as values, and their result: the changes of rows that change streams report."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.timestamps import MAX_NS
from spanner_simulator.core.values import Plain, Row

COMMIT_TIMESTAMP: Final = "spanner.commit_timestamp()"
"""The placeholder of the commit timestamp in a mutation."""

PENDING: Final = MAX_NS + 1
"""The value of a TIMESTAMP column until the commit sets it to the commit timestamp.

It is not a legal timestamp and sorts after all of them.  Reading it is an error of the service.
"""

WriteKind = Literal["insert", "update", "insert_or_update", "replace"]
ModType = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Write:
    """insert, update, insert_or_update or replace of some rows."""

    kind: WriteKind
    table: str
    columns: tuple[str, ...]
    rows: tuple[list[Plain], ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of a key set; missing keys are not an error."""

    table: str
    keys: KeySet


Mutation: TypeAlias = Write | Delete


@dataclass(slots=True)
class RowChange:
    """The net change of one row by a transaction; `written` names non-key columns."""

    table: Table
    key: bytes
    mod_type: ModType
    old: Row | None
    new: Row | None
    written: AbstractSet[str] = field(default_factory=frozenset)
