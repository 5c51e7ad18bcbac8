"""Compares what the topics hold with what was committed.  Pure; it only counts."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.chaos.producer.reader import Logs, Where, reading_orders, replay
from tests.chaos.producer.topic_log import DataEntry, Topics, order_key_of, origin_of
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction
from tidegate.local_stack.judge.values import rfc3339_us

Findings = dict[str, list[str]]
"""Figure -> one text for each thing that is wrong."""

_MODS = {"INSERT": b"I", "UPDATE": b"U", "DELETE": b"D"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _never(_change: LoggedChange) -> bool:
    return False


def compare(
    topics: Topics,
    transactions: Sequence[LoggedTransaction],
    entries: Sequence[DataEntry],
    *,
    is_poison: Callable[[LoggedChange], bool] = _never,
) -> Findings:
    """Return what was lost, twice, out of order, or is not what was committed.

    `entries` are those of the data topics and of the dead letters, by offset in each topic
    partition.  `is_poison` says of which changes no data topic takes the value; such a change, and
    every later one of its key, belongs to the dead letters, and no other does.
    """
    found: Findings = {
        name: []
        for name in (
            "lost",
            "twice",
            "never_committed",
            "unlike_source",
            "out_of_key_order",
            "parked_wrongly",
        )
    }
    committed = {
        (topics.data(change.table), order_key_of(change.place)): change
        for transaction in transactions
        for change in transaction.changes
    }
    origins = {
        name: {origin_of(token) for token in transaction.stream_partition_tokens}
        for transaction in transactions
        for name in (
            (topics.data(one.table), order_key_of(one.place)) for one in transaction.changes
        )
    }
    arrived: dict[tuple[str, bytes], DataEntry] = {}
    last: dict[tuple[str, str, bytes], DataEntry] = {}
    for entry in entries:
        name = entry.data_topic, entry.order_key
        if name in arrived:
            found["twice"].append(f"{_place(entry)}, and {_place(arrived[name])}")
            continue
        arrived[name] = entry
        change = committed.get(name)
        if change is None:
            found["never_committed"].append(f"{_place(entry)}: {entry.order_key.hex()}")
            continue
        if entry.origin not in origins[name]:
            text = f"{_place(entry)}: none of its stream partitions has the hash {entry.origin!r}"
            found["unlike_source"].append(text)
        elif differing := _differences(change, entry):
            found["unlike_source"].append(f"{_place(entry)}: {differing}")
        # In each topic on its own: a key's dead letters all come after what it has in its topic.
        former = last.get((entry.topic, entry.data_topic, entry.key))
        if former is not None and (
            former.topic_partition != entry.topic_partition or former.order_key > entry.order_key
        ):
            found["out_of_key_order"].append(f"{_place(entry)} after {_place(former)}")
        last[entry.topic, entry.data_topic, entry.key] = entry
    found["lost"] = [
        f"{topic}: {change.mod_type} of {dict(change.keys)} at {change.place}"
        for (topic, key), change in committed.items()
        if (topic, key) not in arrived
    ]
    found["parked_wrongly"] = list(_parked_wrongly(topics, committed, arrived, is_poison))
    return found


def _parked_wrongly(
    topics: Topics,
    committed: Mapping[tuple[str, bytes], LoggedChange],
    arrived: Mapping[tuple[str, bytes], DataEntry],
    is_poison: Callable[[LoggedChange], bool],
) -> Iterable[str]:
    parked: dict[tuple[str, bytes], DataEntry] = {}
    """The first dead letter of each key."""
    for name in sorted(arrived, key=lambda one: one[1]):
        entry, change = arrived[name], committed.get(name)
        if change is None:
            continue
        key = entry.data_topic, entry.key
        is_parked = entry.topic == topics.dead_letters
        first = parked.get(key)
        if is_parked and first is None:
            parked[key] = entry
            if not is_poison(change):
                yield f"{_place(entry)}: nothing is wrong with it, and it is the key's first"
        elif not is_parked and first is not None:
            yield f"{_place(entry)}: in its topic after {_place(first)}"
        elif not is_parked and is_poison(change):
            yield f"{_place(entry)}: in its topic, although no topic takes it"


def late_changes(
    topics: Topics, logs: Logs, ends: Mapping[Where, int], *, seed: int, last_us: int
) -> Findings:
    """Read everything again in several orders; return what came late, and what is missing at last.

    `last_us` is the last commit: every reader's watermark has to pass it.
    """
    found: Findings = {"watermark_violations": [], "refused_by_readers": [], "not_caught_up": []}
    for name, order in reading_orders(topics, logs, seed=seed):
        reader = replay(topics, logs, ends, order)
        found["watermark_violations"] += [f"read {name}: {text}" for text in reader.violations]
        found["refused_by_readers"] += [f"read {name}: {text}" for text in reader.broken]
        reached_us = reader.watermark_us or 0
        if reached_us < last_us:
            text = f"read {name}: the last watermark is {last_us - reached_us} µs behind"
            found["not_caught_up"].append(text)
    return found


# ---------------------------------------------------------------- values


def _differences(change: LoggedChange, entry: DataEntry) -> str:
    """Return what of an entry is not what the commit log says; empty if nothing is."""
    if entry.mod != _MODS[change.mod_type]:
        return f"mod {entry.mod!r} where {change.mod_type} was committed"
    for name, value in change.keys.items():
        if not _is_same(entry.row.get(name), value):
            return f"key {name} is {entry.row.get(name)!r}, committed was {value!r}"
    if entry.value is None or change.mod_type == "DELETE":
        return ""
    captured = set(entry.value["new_columns"] or ())
    expected = {**change.new_values, **change.keys}
    if captured != expected.keys():
        return f"columns {sorted(captured)} where {sorted(expected)} were committed"
    row = entry.value["new_values"]
    for name, value in expected.items():
        if not _is_same(row.get(name), value):
            return f"{name} is {row.get(name)!r}, committed was {value!r}"
    return ""


def _is_same(decoded: Any, committed: Any) -> bool:
    """Whether a decoded Avro value is the value that Spanner's JSON form says."""
    match decoded:
        case None:
            return committed is None
        case bool() | str():
            return bool(decoded == committed)
        case int():
            return isinstance(committed, str) and decoded == int(committed)
        case float():
            other = float(committed)
            return decoded == other or (math.isnan(decoded) and math.isnan(other))
        case bytes():
            return decoded == base64.b64decode(committed)
        case Decimal():
            return decoded == Decimal(committed)
        case datetime():
            return (decoded - _EPOCH) // _MICROSECOND == rfc3339_us(committed)
        case date():
            return decoded == date.fromisoformat(committed)
        case _:
            raise TypeError(f"the judge cannot compare a {type(decoded).__name__}")


def _place(entry: DataEntry) -> str:
    return f"{entry.topic}/{entry.topic_partition}@{entry.offset}"
