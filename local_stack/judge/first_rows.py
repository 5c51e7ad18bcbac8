"""The rows that tables had when a stream began, as the transactions that a backfill makes of them.

Which rows there have to be is read from the source.  Where each stands is taken from the changelog,
since that follows from how the producer cut the tables: a row that is not there has a place that
none has, and a second one for the same key remains as a change that nobody committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place

if TYPE_CHECKING:
    from tidegate.local_stack.judge.cuts import SourceReader
    from tidegate.local_stack.judge.delta import ChangelogTable, TableRows


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


def first_transactions(
    first: FirstRows, source: SourceReader, changelogs: Sequence[ChangelogTable]
) -> list[LoggedTransaction]:
    """Return what a backfill has to publish: each row of the source at that time, once."""
    places = {
        changelog.table: _places(changelog, source.primary_key(changelog.table), first.at_us)
        for changelog in changelogs
        if changelog.table in first.tables
    }
    changes: defaultdict[str, list[LoggedChange]] = defaultdict(list)
    for table in first.tables:
        rows = source.read(table, at_us=first.at_us)
        for change in _changes(
            table, rows, source.primary_key(table), places.get(table, {}), first
        ):
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


def _places(
    changelog: ChangelogTable, key: Sequence[str], at_us: int
) -> dict[tuple[Any, ...], Place]:
    """Return where the changelog has the row of each key for the first time."""
    found: dict[tuple[Any, ...], Place] = {}
    for row in changelog.rows:
        if row.tag == BACKFILL_TAG and row.place.commit_timestamp_us == at_us:
            found.setdefault(tuple(row.keys[name] for name in key), row.place)
    return found


def _changes(
    table: str,
    rows: TableRows,
    key: Sequence[str],
    places: Mapping[tuple[Any, ...], Place],
    first: FirstRows,
) -> Iterable[LoggedChange]:
    names = list(rows)
    for number, values in enumerate(zip(*rows.values(), strict=True)):
        row = dict(zip(names, values, strict=True))
        keys = {name: row.pop(name) for name in key}
        nowhere = Place(first.at_us, "", (-1, -1), number)
        place = places.get(tuple(keys.values()), nowhere)
        yield LoggedChange(table, place, "INSERT", keys, row, {})


def _tokens_of(transaction: str, tokens: frozenset[str]) -> frozenset[str]:
    """Return the read partition that a transaction has the rows of: both have its number."""
    number = transaction.removeprefix(f"{BACKFILL_TAG}-")
    begins = f"{_TOKENS}read/{number}/"
    return frozenset(token for token in tokens if token.startswith(begins))
