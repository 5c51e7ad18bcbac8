"""Compares rows of transactions with the commit log: the sinks that write one for each transaction.

Pure: rows and transactions in, faults out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa

from tidegate.local_stack.judge.changelog import value_difference
from tidegate.local_stack.judge.delta import ReleaseManifest
from tidegate.local_stack.judge.log import LoggedTransaction, record_sequence_numbers
from tidegate.local_stack.judge.values import canonical, canonical_json

Row = Mapping[str, Any]
_Thing = TypeVar("_Thing", bound=Hashable)
Types = Mapping[str, Mapping[str, pa.DataType]]
"""Types of each source table's columns."""


def differences(
    found: Iterable[_Thing], expected: Collection[_Thing], *, name: Callable[[_Thing], str] = str
) -> list[str]:
    """Return what is missing, what is there several times, and what was not expected."""
    counts, wanted = Counter(found), set(expected)
    return [
        *(f"lacks {name(one)}" for one in expected if one not in counts),
        *(f"has {name(one)} {count} times" for one, count in counts.items() if count > 1),
        *(
            f"has {name(count)}, which was not released to it"
            for count in counts
            if count not in wanted
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Values:
    """A change of a row, whose keys and values are JSON text."""

    mod_type: str
    keys: Mapping[str, Any]
    new_values: Mapping[str, Any] | None
    old_values: Mapping[str, Any] | None
    new_columns: tuple[str, ...] | None
    old_columns: tuple[str, ...] | None


def compare_transactions(
    files: Sequence[Sequence[Row]],
    committed: Iterable[LoggedTransaction],
    *,
    releases: Sequence[ReleaseManifest],
    types: Types,
) -> list[str]:
    """Return what is missing, there twice or invented, unlike the log, out of order or miscounted.

    `files` are the sink's rows in the order of each file; `committed` and `releases` are all that
    it must hold.
    """
    rows = [row for file in files for row in file]
    expected = {(one.commit_timestamp_us, one.server_transaction_id): one for one in committed}
    return [
        *differences(map(_identity, rows), expected, name=lambda one: f"transaction {_name(one)}"),
        *(
            f"transaction {_name(_identity(row))}: {difference}"
            for row in rows
            if _identity(row) in expected
            for difference in _differences(row, expected[_identity(row)], types)
        ),
        *_disorder(files),
        *_miscounted(rows, releases),
    ]


def _identity(row: Row) -> tuple[int, str]:
    return canonical(row["commit_timestamp"]), row["server_transaction_id"]


def _name(identity: tuple[int, str]) -> str:
    return f"{identity[1]} at {identity[0]} us"


def _differences(row: Row, transaction: LoggedTransaction, types: Types) -> Iterator[str]:
    changes, first = row["changes"], row["first_ordinal"]
    ordinals = [change["ordinal"] for change in changes]
    if ordinals != list(range(first, first + len(ordinals))):
        yield f"its changes have the ordinals {ordinals}, the first of them is {first}"
    logged = sorted(transaction.changes, key=lambda one: one.place)
    places = [
        (change["table"], record_sequence_numbers(change["record_sequence"]), change["mod_number"])
        for change in changes
    ]
    wanted = [(one.table, one.place.record_sequence, one.place.mod_number) for one in logged]
    if places != wanted:
        yield f"its changes are {places}, committed were {wanted}"
        return
    for change, one in zip(changes, logged, strict=True):
        kinds = types.get(one.table, {})
        if difference := value_difference(_values(change, kinds), one, kinds):
            yield f"{one.table}, ordinal {change['ordinal']}: {difference}"


def _values(change: Row, kinds: Mapping[str, pa.DataType]) -> _Values:
    def values(name: str) -> dict[str, Any] | None:
        text = change[name]
        if text is None:
            return None
        return {
            column: canonical_json(value, kinds.get(column, pa.string()))
            for column, value in json.loads(text).items()
        }

    def columns(name: str) -> tuple[str, ...] | None:
        return None if change[name] is None else tuple(change[name])

    return _Values(
        mod_type=change["mod_type"],
        keys=values("key") or {},
        new_values=values("new_values"),
        old_values=values("old_values"),
        new_columns=columns("new_columns"),
        old_columns=columns("old_columns"),
    )


def _disorder(files: Sequence[Sequence[Row]]) -> Iterator[str]:
    """Compare neighbours by release and ordinal, and as they stand in a file."""
    rows = [row for file in files for row in file]
    ordered = sorted(rows, key=lambda row: (row["release"], row["first_ordinal"]))
    for content in (ordered, *files):
        for before, after in pairwise(content):
            if _identity(before) > _identity(after):
                yield f"transaction {_name(_identity(after))} is after {_name(_identity(before))}"


def _miscounted(rows: Sequence[Row], releases: Sequence[ReleaseManifest]) -> Iterator[str]:
    """Compare each release's changes with its manifest: their number, and their commit time."""
    ordinals: dict[int, list[int]] = {release.number: [] for release in releases}
    bounds = {release.number: (release.after_us, release.through_us) for release in releases}
    for row in rows:
        number, (at_us, _) = row["release"], _identity(row)
        ordinals.setdefault(number, []).extend(change["ordinal"] for change in row["changes"])
        after_us, through_us = bounds.get(number, (at_us, at_us))
        if not after_us < at_us <= through_us:
            yield f"transaction {_name(_identity(row))} is in release {number}"
    for release in releases:
        found = sorted(ordinals[release.number])
        if found != list(range(release.rows)):
            yield f"release {release.number} has the ordinals {found} of {release.rows} changes"
