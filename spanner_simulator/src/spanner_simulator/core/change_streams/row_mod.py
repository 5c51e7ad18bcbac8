"""One row change of a data change record: its keys, its new and its old values in plain form."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import Plain, Row, Value, encoder


class Mod(NamedTuple):
    """One row change in plain form; an absent column is unchanged, a null one is NULL."""

    keys: dict[str, Plain]
    new_values: dict[str, Plain]
    old_values: dict[str, Plain]


class RowMod(NamedTuple):  # noqa: PLW1641  # rows cannot be hashed, and neither can this
    """A `Mod` whose plain values are computed when needed, from the rows in storage.

    Rows are never changed in place, so this costs a commit no dictionary and no text.
    """

    table: Table
    old: Row | None
    new: Row | None
    new_names: tuple[str, ...]
    old_names: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        """Whether another mod has equal values, in either representation."""
        if not isinstance(other, RowMod | Mod):
            return NotImplemented
        return (self.keys, self.new_values, self.old_values) == (
            other.keys,
            other.new_values,
            other.old_values,
        )

    @property
    def keys(self) -> dict[str, Plain]:
        """The key columns."""
        return _plain(self.table, self.old if self.new is None else self.new, self.table.key_names)

    @property
    def new_values(self) -> dict[str, Plain]:
        """The captured columns after the change."""
        return _plain(self.table, self.new, self.new_names)

    @property
    def old_values(self) -> dict[str, Plain]:
        """The captured columns before the change."""
        return _plain(self.table, self.old, self.old_names)


def _plain(table: Table, row: Row | None, names: tuple[str, ...]) -> dict[str, Plain]:
    held = row or {}
    return {
        name: None if (value := held.get(name)) is None else write(value)
        for name, write in _writers(table, names)
    }


@lru_cache(maxsize=4096)
def _writers(
    table: Table, names: tuple[str, ...]
) -> tuple[tuple[str, Callable[[Value], Plain]], ...]:
    """Encoders of these columns' values other than NULL."""
    return tuple((name, encoder(table.type_of[name])) for name in names)
