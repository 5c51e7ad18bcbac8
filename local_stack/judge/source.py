"""The source tables at an instant, and the rows that they had when a stream began.

Tables are read with the official Spanner client only.  Values are taken undecoded and converted to
the canonical form here: the client's decoding costs more time than everything else in the judge.

The rows that a stream began with are compared as the transactions that a backfill makes of them.
The source determines the rows; the output determines the place of each, since that depends on how
the producer cut the tables.  An absent row has a place that no row can have, and a second row for
the same key remains as a change that was never committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from google.cloud.spanner_v1 import KeySet, TypeCode

from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place
from tidegate.local_stack.judge.values import rfc3339_us

if TYPE_CHECKING:
    from tidegate.local_stack.judge.cuts import SourceReader
    from tidegate.local_stack.judge.delta import ChangelogTable, TableRows


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALL = KeySet(all_=True)  # type: ignore[no-untyped-call]  # the client has no types
_READERS: Mapping[Any, Callable[[Any], Any]] = {
    TypeCode.INT64: lambda value: int(value.string_value),
    TypeCode.STRING: lambda value: str(value.string_value),
    TypeCode.TIMESTAMP: lambda value: rfc3339_us(value.string_value),
    TypeCode.BOOL: lambda value: bool(value.bool_value),
}
"""The canonical form of a protobuf value, by the type of its column."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """All columns of a source table, and those of its primary key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpannerSource:
    """Reads whole tables from a `google.cloud.spanner_v1` database."""

    database: Any
    layout: Mapping[str, SourceTable]

    def tables(self) -> Sequence[str]:
        """Return the names of all watched tables."""
        return tuple(self.layout)

    def primary_key(self, table: str) -> Sequence[str]:
        """Return the names of a table's key columns."""
        return self.layout[table].key

    def read(self, table: str, *, at_us: int | None) -> TableRows:
        """Return a table's content at an instant (exact staleness), or now (strong)."""
        bound = {} if at_us is None else {"read_timestamp": _EPOCH + timedelta(microseconds=at_us)}
        names = self.layout[table].columns
        with self.database.snapshot(**bound) as snapshot:
            answer = snapshot.read(table, columns=names, keyset=_ALL, lazy_decode=True)
            rows = list(answer)
            fields = list(answer.fields) if rows else []
        if not rows:
            return dict.fromkeys(names, ())
        columns = zip(*rows, strict=True)
        return {
            name: _column(field.type_.code, values)
            for name, field, values in zip(names, fields, columns, strict=True)
        }


def _column(code: TypeCode, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a column of protobuf values in canonical form."""
    read = _READERS.get(code)
    if read is None:
        raise TypeError(f"the judge does not read columns of type {code.name}")
    return tuple(None if value.HasField("null_value") else read(value) for value in values)


# ---------------------------------------------------------------- the rows before a stream

BACKFILL_TAG = "spanner-backfill"
_TOKENS = "tidegate-backfill/"


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The rows that a stream began with."""

    at_us: int
    """The commit time of all of them; everything that the log has up to then is in them."""
    tables: tuple[str, ...]
    tokens: frozenset[str]
    """The stream partitions of the backfill that have finished."""


def is_of_backfill(token: str) -> bool:
    """Whether a stream partition is one of a backfill, and not Spanner's own."""
    return token.startswith(_TOKENS)


FirstPlaces = Mapping[str, Mapping[tuple[str, ...], Place]]
"""Table -> the values of a key as text -> the first place that the row has in the output."""


def first_transactions(
    first: FirstRows, source: SourceReader, places: FirstPlaces
) -> list[LoggedTransaction]:
    """Return the transactions that a backfill has to publish: each row of the source, once."""
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
            changes=tuple(of_transaction),
        )
        for transaction, of_transaction in changes.items()
    ]


def places_in_changelogs(
    first: FirstRows, source: SourceReader, changelogs: Sequence[ChangelogTable]
) -> FirstPlaces:
    """Return the first place of each row in the changelogs."""
    places_of_table: dict[str, dict[tuple[str, ...], Place]] = {}
    for changelog in changelogs:
        if changelog.table in first.tables:
            places = places_of_table[changelog.table] = {}
            key = source.primary_key(changelog.table)
            for row in changelog.rows:
                if row.tag == BACKFILL_TAG and row.place.commit_timestamp_us == first.at_us:
                    places.setdefault(key_text(row.keys, key), row.place)
    return places_of_table


def key_text(keys: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
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
        yield LoggedChange(table, places.get(key_text(keys, key), nowhere), "INSERT", keys, row, {})


def _tokens_of(transaction: str, tokens: frozenset[str]) -> frozenset[str]:
    """Return the read partition that a transaction has the rows of: both have its number."""
    number = transaction.removeprefix(f"{BACKFILL_TAG}-")
    begins = f"{_TOKENS}read/{number}/"
    return frozenset(token for token in tokens if token.startswith(begins))
