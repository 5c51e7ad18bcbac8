"""A small release's changes of one table, folded in the driver: what `fold` does in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from tidegate.spark_consumer.sinks.delta.fold import DELETE, PATCH, REPLACE

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

    def take(self, change: Mapping[str, Any], columns: frozenset[str]) -> None:
        """Fold the key's next change, with what it captured of the table's columns."""
        if change["mod_type"] == "UPDATE":
            self.updated_after_base = self.base_ordinal is not None
        else:
            self.action = REPLACE if change["mod_type"] == "INSERT" else DELETE
            self.base_ordinal = change["ordinal"]
            self.updated_after_base = False
            self.values = {}
        if (new := change["new_values"]) is not None:
            names = change["new_columns"]
            captured = columns if names is None else columns.intersection(names)
            self.values.update((name, new.get(name)) for name in captured)


@dataclass(frozen=True, slots=True)
class FoldedChange:
    """The fold of a key's changes up to one of them; the fields of `fold_each`, in microseconds."""

    ordinal: int
    mod_type: str
    starts_at: int
    ends_at: int | None
    is_first: bool
    state: FoldedRow


def fold_rows(changes: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[FoldedRow]:
    """Return one row per key of decoded changes, which are in the order of their ordinals."""
    known = frozenset(columns)
    folded: dict[tuple[Any, ...], FoldedRow] = {}
    for change in changes:
        key = tuple(change["key"].values())
        folded.setdefault(key, FoldedRow(change["key"])).take(change, known)
    return list(folded.values())


def fold_each_row(
    changes: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> list[FoldedChange]:
    """Return one row per change, each key's together; changes are in the order of ordinals."""
    by_key: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for change in changes:
        by_key.setdefault(tuple(change["key"].values()), []).append(change)
    known = frozenset(columns)
    return [one for of_key in by_key.values() for one in _steps(of_key, known)]


def _steps(of_key: Sequence[Mapping[str, Any]], columns: frozenset[str]) -> Iterator[FoldedChange]:
    state = FoldedRow(of_key[0]["key"])
    for change, following in zip_longest(of_key, of_key[1:]):
        state = replace(state, values=dict(state.values))
        state.take(change, columns)
        yield FoldedChange(
            ordinal=change["ordinal"],
            mod_type=change["mod_type"],
            starts_at=change["commit_timestamp"],
            ends_at=None if following is None else following["commit_timestamp"],
            is_first=change is of_key[0],
            state=state,
        )
