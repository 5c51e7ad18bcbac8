"""A small release's changes of one table, folded in the driver: what `fold` does in Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.sinks.delta.fold import DELETE, PATCH, REPLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["FoldedRow", "fold_rows"]

_BEFORE_EVERY_CHANGE = -1


@dataclass(slots=True)
class FoldedRow:
    """What to do with one key, and with what; the fields of `fold`, without its flags.

    `values` holds what was captured since the base.  Of a `REPLACE` every column counts as
    captured: one that is not in `values` becomes NULL.
    """

    key: Mapping[str, Any]
    action: str = PATCH
    base_ordinal: int | None = None
    updated_after_base: bool = False
    values: dict[str, Any] = field(default_factory=dict)

    def captures(self, column: str) -> bool:
        """Whether the table's column gets a value, which may be NULL."""
        return self.action == REPLACE or column in self.values

    def is_after_base(self, ordinal: int) -> bool:
        """Whether a change of the key counts: it comes after its last INSERT or DELETE."""
        base = _BEFORE_EVERY_CHANGE if self.base_ordinal is None else self.base_ordinal
        return ordinal > base


def fold_rows(changes: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[FoldedRow]:
    """Return one row per key of decoded changes, which are in the order of their ordinals."""
    known = frozenset(columns)
    folded: dict[tuple[Any, ...], FoldedRow] = {}
    for change in changes:
        key = tuple(change["key"].values())
        one = folded.setdefault(key, FoldedRow(change["key"]))
        if change["mod_type"] == "UPDATE":
            one.updated_after_base = one.base_ordinal is not None
        else:
            one.action = REPLACE if change["mod_type"] == "INSERT" else DELETE
            one.base_ordinal = change["ordinal"]
            one.updated_after_base = False
            one.values = {}
        if (new := change["new_values"]) is not None:
            names = change["new_columns"]
            captured = columns if names is None else known.intersection(names)
            one.values.update((name, new.get(name)) for name in captured)
    return list(folded.values())
