"""The simulator's commit log, fetched over HTTP: the changes that were really committed.

The judge shares no code with `schemas`.  So two things are defined here a second time on purpose:
commit order, in which a change's place is (commit timestamp, server transaction id, record
sequence, mod number), and the number of a stream partition.
"""

from __future__ import annotations

import functools
import json
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from xxhash import xxh64_digest

_FETCH_TIMEOUT_S = 120
_SEED = 42


@functools.cache
def origin_of(token: str) -> bytes:
    """Return the name of a stream partition in the headers of its changes."""
    return xxh64_digest(token.encode(), _SEED)


def origin_number(token: str) -> int:
    """Return the number of a stream partition, as a changelog names it: signed, of 64 bits."""
    return int.from_bytes(origin_of(token), "big", signed=True)


class Place(NamedTuple):
    """A change's place; compares in commit order."""

    commit_timestamp_us: int
    server_transaction_id: str
    record_sequence: tuple[int, int]
    mod_number: int


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One committed change; values are in Spanner's JSON form (an INT64 is a string)."""

    table: str
    place: Place
    mod_type: str
    keys: Mapping[str, Any]
    new_values: Mapping[str, Any]
    old_values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """One committed transaction and the stream partitions that its records went to."""

    commit_timestamp_us: int
    server_transaction_id: str
    tag: str
    stream_partition_tokens: frozenset[str]
    changes: tuple[LoggedChange, ...]


def record_sequence_numbers(text: str) -> tuple[int, int]:
    """Return a record sequence as two comparable integers: `00000012` is (0, 12)."""
    high, dash, low = text.partition("-")
    return (int(high, 16), int(low, 16)) if dash else (0, int(high))


def parse_commit_log(lines: Iterable[str]) -> list[LoggedTransaction]:
    """Return the transactions of a commit log (JSON lines) that have changes, in its order."""
    transactions = []
    for line in lines:
        if not line.strip():
            continue
        entry = json.loads(line)
        transaction_id = str(entry["server_transaction_id"])
        commit_us = int(entry["commit_timestamp_us"])
        changes = tuple(
            LoggedChange(
                table=change["table"],
                place=_place(change, commit_us, transaction_id, number=number),
                mod_type=change["mod_type"],
                keys=change["keys"],
                new_values=change["new_values"] or {},
                old_values=change["old_values"] or {},
            )
            for number, change in enumerate(entry["changes"])
        )
        if changes:
            transactions.append(
                LoggedTransaction(
                    commit_timestamp_us=commit_us,
                    server_transaction_id=transaction_id,
                    tag=entry.get("tag") or "",
                    stream_partition_tokens=frozenset(entry["stream_partition_tokens"]),
                    changes=changes,
                )
            )
    return transactions


def _place(change: Mapping[str, Any], commit_us: int, transaction_id: str, *, number: int) -> Place:
    """Return a change's place; a change without a record gets a place that no row can have."""
    if change["record_sequence"] is None:
        return Place(commit_us, transaction_id, (-1, -1), number)
    return Place(
        commit_timestamp_us=commit_us,
        server_transaction_id=transaction_id,
        record_sequence=record_sequence_numbers(change["record_sequence"]),
        mod_number=int(change["mod_number"]),
    )


def fetch_commit_log(control: str, *, database: str, stream: str) -> list[LoggedTransaction]:
    """Return all changes that a stream watched, from the simulator at `control` (host:port)."""
    query = urllib.parse.urlencode({"database": database, "stream": stream, "from": 0})
    url = f"http://{control}/commit-log?{query}"
    with urllib.request.urlopen(url, timeout=_FETCH_TIMEOUT_S) as answer:
        return parse_commit_log(line.decode() for line in answer)
