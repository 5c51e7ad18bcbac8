"""P2: in every data topic the changes of one primary key stand in commit order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.simulation.history import Committed, History, Published, Violation, is_behind
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import ROOT_TOKEN


def key_order(history: History) -> Iterator[Violation]:
    """Neighbours of a key are in order; transactions of one instant have no order between them."""
    places: dict[tuple[str, bytes], int] = {}
    newest: dict[tuple[str, bytes], OrderKey] = {}
    for record in sorted(history.published, key=lambda r: (r.topic, r.topic_partition, r.offset)):
        if record.is_copy:
            continue
        key = record.topic, record.key
        if places.setdefault(key, record.topic_partition) != record.topic_partition:
            yield Violation("a key is in two topic partitions", record.order_key)
        now, before = OrderKey.decode(record.order_key), newest.get(key)
        newest[key] = now
        if before is not None and (now == before or is_behind(now, before)):
            yield Violation("behind a later change of its key", record.order_key)


_FIRST_OF_RUN = re.compile(r"tidegate-backfill/table/[0-9]+/0/wait/")
"""First token of a run that reads a table in chunks (`docs/protocol.md`, 7.18)."""


def lineage(history: History) -> Iterator[Violation]:
    """A child is read only after the completion markers of all its parents are committed."""
    finished = {finish.token: finish.at for finish in reversed(history.finishes)}
    for query in history.queries:
        fact = history.lineage.get(query.token)
        if query.token == ROOT_TOKEN or fact is None:
            continue
        if query.start_us < max(fact.start_us, history.start_us):
            yield Violation("a query begins before its stream partition", query.token)
        if history.has_key_moves or _FIRST_OF_RUN.match(query.token):
            continue  # it is announced by one that goes on, and its order is that of its keys
        for parent in _parents(history, query.token):
            if finished.get(parent, query.at) >= query.at:
                text = f"{query.worker} reads it before its parent {parent} is finished"
                yield Violation(text, query.token)


def _parents(history: History, token: str) -> tuple[str, ...]:
    """Return the parents that the stream has to read: those that ended before it do not count."""
    return tuple(
        parent
        for parent in history.lineage[token].parents
        if (history.lineage[parent].end_us or 0) > history.start_us
    )


_Change = Committed | Published


def chunk_rows(history: History) -> Iterator[Violation]:
    """A row that was read in a chunk is the row as of its chunk's time, in its place among changes.

    Rows have a topic of their own, where nothing says what changes of their keys were published
    first.  By their order keys, rows and changes together end in what the table holds.
    """
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
