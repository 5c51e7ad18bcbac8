"""Compares the topics with what was committed.  Pure: it only counts."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.chaos.judge.topics import DataEntry, Topics
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place, origin_of
from tidegate.local_stack.judge.values import rfc3339_us

Findings = dict[str, list[str]]
"""Figure -> one text for each fault."""

_MODS = {"INSERT": b"I", "UPDATE": b"U", "DELETE": b"D"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FRAME_BYTES = 5

_Name = tuple[str, Place]
"""A change: its data topic and its place."""


def is_never_poison(_change: LoggedChange) -> bool:
    """Return False."""
    return False


def compare_published(
    topics: Topics,
    transactions: Sequence[LoggedTransaction],
    entries: Sequence[DataEntry],
    *,
    is_poison: Callable[[LoggedChange], bool] = is_never_poison,
) -> Findings:
    """Return what was lost, twice, out of order, or is not what was committed.

    `entries` are those of the data topics and of the dead letters, by offset in each topic
    partition.  `is_poison` says of which changes no data topic takes the value; such a change, and
    every later one of its key, belongs to the dead letters, and no other does.
    """
    names = ("twice", "never_committed", "unlike_source", "out_of_key_order")
    found: Findings = {"lost": [], **{name: [] for name in names}, "parked_wrongly": []}
    committed: dict[_Name, LoggedChange] = {}
    origins: dict[_Name, set[bytes]] = {}
    for transaction in transactions:
        tokens = {origin_of(token) for token in transaction.stream_partition_tokens}
        for change in transaction.changes:
            committed[topics.data(change.table), change.place] = change
            origins[topics.data(change.table), change.place] = tokens
    arrived: dict[_Name, DataEntry] = {}
    last: dict[tuple[str, str, bytes], DataEntry] = {}
    schemas: dict[str, bytes] = {}
    for entry in entries:
        name = entry.data_topic, entry.place
        if name in arrived:
            found["twice"].append(f"{entry.where}, and {arrived[name].where}")
            continue
        arrived[name] = entry
        if name not in committed:
            found["never_committed"].append(f"{entry.where}: {entry.place}")
            continue
        if entry.origin not in origins[name]:
            text = f"{entry.where}: none of its stream partitions has the hash {entry.origin!r}"
            found["unlike_source"].append(text)
        elif differing := _differences(committed[name], entry):
            found["unlike_source"].append(f"{entry.where}: {differing}")
        # In each topic separately: a key's dead letters all come after its changes in its topic.
        former = last.get((entry.topic, entry.data_topic, entry.key))
        if former is not None and (
            former.topic_partition != entry.topic_partition or former.place > entry.place
        ):
            found["out_of_key_order"].append(f"{entry.where} after {former.where}")
        last[entry.topic, entry.data_topic, entry.key] = entry
        framing = entry.key[:_FRAME_BYTES]
        if schemas.setdefault(entry.data_topic, framing) != framing:
            found["out_of_key_order"].append(f"{entry.where}: its key has another schema")
    found["lost"] = [
        f"{topic}: {change.mod_type} of {dict(change.keys)} at {place}"
        for (topic, place), change in committed.items()
        if (topic, place) not in arrived
    ]
    found["parked_wrongly"] = list(_parked_wrongly(topics, committed, arrived, is_poison))
    return found


def _parked_wrongly(
    topics: Topics,
    committed: Mapping[_Name, LoggedChange],
    arrived: Mapping[_Name, DataEntry],
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
                yield f"{entry.where}: nothing is wrong with it, and it is the key's first"
        elif not is_parked and first is not None:
            yield f"{entry.where}: in its topic after {first.where}"
        elif not is_parked and is_poison(change):
            yield f"{entry.where}: in its topic, although no topic takes it"


# ---------------------------------------------------------------- values


def _differences(change: LoggedChange, entry: DataEntry) -> str:
    """Return the first difference of an entry from the commit log, or an empty text."""
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
