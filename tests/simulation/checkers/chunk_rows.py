"""A row that was read in a chunk is the row as of its chunk's time, in its place among changes.

Rows have a topic of their own, where nothing says what changes of their keys were published first.
By their order keys, rows and changes together end in what the table holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.simulation.history import Committed, History, Published, Violation

_Change = Committed | Published


def check(history: History) -> Iterator[Violation]:
    for beside, data in history.read_beside.items():
        committed: dict[bytes, list[_Change]] = defaultdict(list)
        published: dict[bytes, list[_Change]] = defaultdict(list)
        for change in (*history.committed, *history.filtered):
            if change.topic == data:
                committed[change.key].append(change)
        for record in history.published:
            if record.topic in (beside, data) and not record.is_copy and record.columns is not None:
                published[record.key].append(record)
        for key, records in published.items():
            rows = [one for one in records if one.topic == beside]
            for row in rows:
                before = [one for one in committed[key] if one.order_key < row.order_key]
                yield from _compared("at its time", _folded(before), _folded([row]), row)
            known = {one.order_key for one in records}
            if rows and known >= {one.order_key for one in committed[key]}:
                yield from _compared(
                    "in the end", _folded(committed[key]), _folded(records), rows[-1]
                )


def _compared(
    when: str, source: dict[str, object] | None, found: dict[str, object] | None, row: _Change
) -> Iterator[Violation]:
    """Compare what both know of a row: columns come and go."""
    known = (
        source if source is None or found is None else {name: source.get(name) for name in found}
    )
    if known != found:
        yield Violation(f"{when} {row.key!r} is {source}, and not {found}", row.order_key)


def _folded(changes: Iterable[_Change]) -> dict[str, object] | None:
    """Return what changes, put in order by their order keys, leave of a row."""
    row: dict[str, object] | None = None
    for change in sorted(changes, key=lambda one: one.order_key):
        columns = dict(change.columns or {})
        if change.mod == "D":
            row = None
        elif change.mod == "I" or row is None:
            row = columns
        else:
            row = {**row, **columns}
    return row
