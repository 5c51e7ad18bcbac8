"""What a backfill has to publish: the rows that the commit log leaves at the stream's start.

Pure, and without Tidegate's code (`docs/protocol.md`, 7.16).  Where each row stands is taken from
its topic, since that follows from how a worker cut the tables: a row that is in no topic has a
place that none has, and a second one of the same key remains as a change that nobody committed.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.chaos.producer.topic_log import DataEntry, Topics
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place

_TAG = "spanner-backfill"
_READ = "tidegate-backfill/read"
_TIME_BYTES = 8
_TAIL = struct.Struct(">QQI")

_Key = tuple[str, str]
"""A table, and the key's values as text."""


def with_first_rows(
    transactions: Sequence[LoggedTransaction],
    entries: Iterable[DataEntry],
    *,
    topics: Topics,
    columns: Mapping[str, Sequence[str]],
    tokens: Iterable[str],
    at_us: int,
) -> list[LoggedTransaction]:
    """Return the commit log after a time, behind the rows that there were then.

    `columns` are those of each table, without the key's; `tokens` are the read partitions.
    """
    places = _places(entries, at_us)
    by_number = {token.split("/")[2]: token for token in tokens if token.startswith(_READ)}
    changes: defaultdict[str, list[LoggedChange]] = defaultdict(list)
    for number, ((table, _), (keys, values)) in enumerate(_rows(transactions, at_us).items()):
        nowhere = Place(at_us, "", (0, 0), number)
        place = places.get((topics.data(table), _text(keys)), nowhere)
        row = {name: values.get(name) for name in columns[table]}
        changes[place.server_transaction_id].append(
            LoggedChange(table, place, "INSERT", keys, row, {})
        )
    first = [
        LoggedTransaction(
            at_us,
            transaction,
            _TAG,
            frozenset({by_number.get(transaction.removeprefix(f"{_TAG}-"), "")}),
            tuple(found),
        )
        for transaction, found in changes.items()
    ]
    return [*first, *(one for one in transactions if one.commit_timestamp_us > at_us)]


def place_of(order_key: bytes) -> Place:
    """Return the place that an order key says."""
    at_us = int.from_bytes(order_key[:_TIME_BYTES], "big")
    transaction, tail = order_key[_TIME_BYTES : -_TAIL.size], order_key[-_TAIL.size :]
    high, low, mod = _TAIL.unpack(tail)
    return Place(at_us, transaction.removesuffix(b"\0").decode(), (high, low), mod)


def _rows(
    transactions: Iterable[LoggedTransaction], at_us: int
) -> dict[_Key, tuple[Mapping[str, Any], dict[str, Any]]]:
    """Return the key and the values of each row at a time."""
    rows: dict[_Key, tuple[Mapping[str, Any], dict[str, Any]]] = {}
    for one in transactions:
        if one.commit_timestamp_us > at_us:
            continue
        for change in one.changes:
            key = change.table, _text(change.keys)
            if change.mod_type == "DELETE":
                rows.pop(key, None)
            else:
                _, values = rows.get(key, (change.keys, {}))
                rows[key] = change.keys, {**values, **change.new_values}
    return rows


def _places(entries: Iterable[DataEntry], at_us: int) -> dict[tuple[str, str], Place]:
    """Return where the topics have the row of each key for the first time."""
    found: dict[tuple[str, str], Place] = {}
    for entry in entries:
        if entry.commit_us == at_us:
            place = place_of(entry.order_key)
            if place.server_transaction_id.startswith(_TAG):
                found.setdefault((entry.data_topic, _text(entry.row)), place)
    return found


def _text(keys: Mapping[str, Any]) -> str:
    """Return a key as text, whether an INT64 is a number or, as in Spanner's JSON, a text."""
    return repr(sorted((name, str(value)) for name, value in keys.items()))
