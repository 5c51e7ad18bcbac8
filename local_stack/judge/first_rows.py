"""The rows that tables had when a stream began, as the transactions that a backfill makes of them.

Which rows there have to be is read from the source.  Where each is, is taken from the changelog or
from the topics, since that follows from how the producer cut the tables: a row that is absent has a
place that none has, and a second one for the same key remains as a change that nobody committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place
from tidegate.local_stack.judge.logged_source import LoggedSource

if TYPE_CHECKING:
    from tidegate.local_stack.judge.cuts import SourceReader
    from tidegate.local_stack.judge.delta import ChangelogTable
    from tidegate.local_stack.judge.source import SourceTable
    from tidegate.local_stack.judge.topics import DataEntry, Published, Topics


BACKFILL_TAG = "spanner-backfill"
_TOKENS = "tidegate-backfill/"


@dataclass(frozen=True, slots=True)
class FirstRows:
    """What a stream began with."""

    at_us: int
    """The commit time of all of them; everything that the log has up to then is in them."""
    tables: tuple[str, ...]
    tokens: frozenset[str]
    """The stream partitions of the backfill that have finished."""


def is_of_backfill(token: str) -> bool:
    """Whether a stream partition is one of a backfill, and not Spanner's own."""
    return token.startswith(_TOKENS)


def with_first_rows(
    transactions: Sequence[LoggedTransaction],
    first: FirstRows,
    layout: Mapping[str, SourceTable],
    published: Published,
) -> list[LoggedTransaction]:
    """Return the commit log after a time, behind the rows that its tables had then."""
    before = [one for one in transactions if one.commit_timestamp_us <= first.at_us]
    source = LoggedSource(before, layout, {})
    places = places_in_topics(first, source, published.topics, published.data)
    rows = first_transactions(first, source, places)
    return [*rows, *(one for one in transactions if one.commit_timestamp_us > first.at_us)]


FirstPlaces = Mapping[str, Mapping[tuple[str, ...], Place]]
"""Table -> the values of a key as text -> the first place that the row has in the output."""


def first_transactions(
    first: FirstRows, source: SourceReader, places: FirstPlaces
) -> list[LoggedTransaction]:
    """Return what a backfill has to publish: each row of the source at that time, once."""
    changes: defaultdict[str, list[LoggedChange]] = defaultdict(list)
    for table in first.tables:
        for change in _changes(table, source, places.get(table, {}), first.at_us):
            changes[change.place.server_transaction_id].append(change)
    return [
        LoggedTransaction(
            commit_timestamp_us=first.at_us,
            server_transaction_id=transaction,
            tag=BACKFILL_TAG,
            stream_partition_tokens=_tokens_of(transaction, first.tokens),
            changes=tuple(found),
        )
        for transaction, found in changes.items()
    ]


def places_in_changelogs(
    first: FirstRows, source: SourceReader, changelogs: Sequence[ChangelogTable]
) -> FirstPlaces:
    """Return the first place of each row in the changelogs."""
    found: dict[str, dict[tuple[str, ...], Place]] = {}
    for changelog in changelogs:
        if changelog.table in first.tables:
            places = found[changelog.table] = {}
            key = source.primary_key(changelog.table)
            for row in changelog.rows:
                if row.tag == BACKFILL_TAG and row.place.commit_timestamp_us == first.at_us:
                    places.setdefault(_text(row.keys, key), row.place)
    return found


def places_in_topics(
    first: FirstRows, source: SourceReader, topics: Topics, entries: Iterable[DataEntry]
) -> FirstPlaces:
    """Return the first place of each row in the topics."""
    tables = {topics.data(table): table for table in first.tables}
    found: dict[str, dict[tuple[str, ...], Place]] = {table: {} for table in first.tables}
    for entry in entries:
        table, place = tables.get(entry.data_topic), entry.place
        is_first = place.server_transaction_id.startswith(BACKFILL_TAG)
        if table is not None and is_first and place.commit_timestamp_us == first.at_us:
            found[table].setdefault(_text(entry.row, source.primary_key(table)), place)
    return found


def _text(keys: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return a key as text, whether an INT64 is a number or, as in Spanner's JSON, a text."""
    return tuple(str(keys[name]) for name in names)


def _changes(
    table: str, source: SourceReader, places: Mapping[tuple[str, ...], Place], at_us: int
) -> Iterable[LoggedChange]:
    rows, key = source.read(table, at_us=at_us), source.primary_key(table)
    for number, values in enumerate(zip(*rows.values(), strict=True)):
        row = dict(zip(rows, values, strict=True))
        keys = {name: row.pop(name) for name in key}
        nowhere = Place(at_us, "", (-1, -1), number)
        yield LoggedChange(table, places.get(_text(keys, key), nowhere), "INSERT", keys, row, {})


def _tokens_of(transaction: str, tokens: frozenset[str]) -> frozenset[str]:
    """Return the read partition that a transaction has the rows of: both have its number."""
    number = transaction.removeprefix(f"{BACKFILL_TAG}-")
    begins = f"{_TOKENS}read/{number}/"
    return frozenset(token for token in tokens if token.startswith(begins))
