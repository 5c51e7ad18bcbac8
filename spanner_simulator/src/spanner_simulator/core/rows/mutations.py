"""Mutations as values, and what they come to: the changes of rows that change streams report."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.timestamps import MAX_NS
from spanner_simulator.core.values import Plain, Row

COMMIT_TIMESTAMP: Final = "spanner.commit_timestamp()"
"""What stands in a mutation for the commit timestamp."""

PENDING: Final = MAX_NS + 1
"""What a TIMESTAMP column holds until the commit gives it the commit timestamp.

It is no legal timestamp and sorts after all of them. Reading it is an error of the service.
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
    """Deletion of a key set; keys that do not exist are no error."""

    table: str
    keys: KeySet


Mutation: TypeAlias = Write | Delete


@dataclass(slots=True)
class RowChange:
    """What a transaction did to one row in the end. `written` names non-key columns."""

    table: Table
    key: bytes
    mod_type: ModType
    old: Row | None
    new: Row | None
    written: AbstractSet[str] = field(default_factory=frozenset)
