"""The source tables, computed from the commit log: what the changes up to a time leave of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tests.chaos.judge.topics import DataEntry, Published, Topics
from tidegate.local_stack.judge.cuts import SourceReader
from tidegate.local_stack.judge.delta import TableRows
from tidegate.local_stack.judge.log import LoggedTransaction, Place
from tidegate.local_stack.judge.source import (
    BACKFILL_TAG,
    FirstPlaces,
    FirstRows,
    SourceTable,
    first_transactions,
    key_text,
)
from tidegate.local_stack.judge.values import canonical_json


class LoggedSource:
    """Tables that were empty before the log; times are cheap to read in their order."""

    def __init__(
        self,
        transactions: Iterable[LoggedTransaction],
        layout: Mapping[str, SourceTable],
        types: Mapping[str, Mapping[str, pa.DataType]],
    ) -> None:
        """Begin before the first transaction; without its type a value stays in JSON form."""
        self._transactions = sorted(
            transactions, key=lambda one: (one.commit_timestamp_us, one.server_transaction_id)
        )
        self._layout, self._types = layout, types
        self._rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self._done, self._at_us = 0, -1
        self._begin()

    def tables(self) -> Sequence[str]:
        """Return the names of all watched tables."""
        return tuple(self._layout)

    def primary_key(self, table: str) -> Sequence[str]:
        """Return the names of a table's key columns."""
        return self._layout[table].key

    def read(self, table: str, *, at_us: int | None) -> TableRows:
        """Return a table as it was at an instant, or as it is now."""
        if at_us is not None and at_us < self._at_us:
            self._begin()
        while self._done < len(self._transactions):
            transaction = self._transactions[self._done]
            if at_us is not None and transaction.commit_timestamp_us > at_us:
                break
            self._apply(transaction)
            self._done += 1
            self._at_us = transaction.commit_timestamp_us
        rows = self._rows[table].values()
        return {name: tuple(row.get(name) for row in rows) for name in self._layout[table].columns}

    def _begin(self) -> None:
        self._rows = {table: {} for table in self._layout}
        self._done, self._at_us = 0, -1

    def _apply(self, transaction: LoggedTransaction) -> None:
        for change in sorted(transaction.changes, key=lambda one: one.place):
            if change.table not in self._layout:
                continue
            kinds, rows = self._types.get(change.table, {}), self._rows[change.table]
            values = {
                name: canonical_json(value, kinds[name]) if name in kinds else value
                for name, value in {**change.keys, **change.new_values}.items()
            }
            key = tuple(values[name] for name in self._layout[change.table].key)
            if change.mod_type == "DELETE":
                rows.pop(key, None)
            else:
                rows[key] = {**rows.get(key, {}), **values}


def with_first_rows(
    transactions: Sequence[LoggedTransaction],
    first: FirstRows,
    layout: Mapping[str, SourceTable],
    published: Published,
) -> list[LoggedTransaction]:
    """Return the commit log after a time, behind the rows that its tables had then."""
    before = [
        transaction
        for transaction in transactions
        if transaction.commit_timestamp_us <= first.at_us
    ]
    source = LoggedSource(before, layout, {})
    places = places_in_topics(first, source, published.topics, published.data)
    rows = first_transactions(first, source, places)
    return [
        *rows,
        *(
            transaction
            for transaction in transactions
            if transaction.commit_timestamp_us > first.at_us
        ),
    ]


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
            found[table].setdefault(key_text(entry.row, source.primary_key(table)), place)
    return found
