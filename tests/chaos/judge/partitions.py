"""Compares the completion markers with the topics, and with the stream partitions of Spanner.

Pure, but for `queries_in`, which reads a worker's log.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh64_intdigest

from tests.chaos.judge.order_key import order_key_of
from tests.chaos.judge.topics import ProgressEntry, Published
from tidegate.local_stack.judge.log import origin_of
from tidegate.local_stack.judge.values import rfc3339_us

_ROOT = ""
"""The parent of the stream partitions that a stream begins with."""
_NS_PER_US = 1_000
_SEED = 42
_MODULUS = 1 << 64
_HEARTBEATS = ("SLOT_PROGRESS", "SLOT_CHANGES")


@dataclass(frozen=True, slots=True)
class StreamPartitions:
    """What the simulator reported of all stream partitions that there ever were."""

    start_us: int
    """The stream's start: no query begins before."""
    born: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Token -> its start in microseconds, and its parents."""
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of those that have ended."""

    def begins_us(self, token: str) -> int:
        """Return when a stream partition starts."""
        return int(self.born[token]["start_timestamp_us"])

    def ended_us(self, token: str) -> int | None:
        """Return when a stream partition ended; None while Spanner writes to it."""
        children = self.children.get(token)
        return None if children is None else self.begins_us(children[0])


@dataclass(frozen=True, slots=True)
class Query:
    """A worker has begun a query."""

    at_us: int
    worker: str
    token: str
    start_us: int


def queries_in(log: Path, *, worker: str) -> Iterator[Query]:
    """Yield the queries of a worker's log."""
    for line in log.read_bytes().splitlines() if log.exists() else ():
        if b'"query"' not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("event") == "query":
            at_us = rfc3339_us(entry["timestamp"])
            yield Query(at_us, worker, entry["token"], entry["start_ns"] // _NS_PER_US)


def compare_revisions(published: Published) -> list[str]:
    """Return where a heartbeat of a slot does not follow the one before it by one revision.

    Only the slot's owner writes it, and nothing may be compacted yet.
    """
    found = []
    revisions: defaultdict[int, int] = defaultdict(int)
    for entry in published.progress:
        if entry.kind in _HEARTBEATS and not entry.body["chunk"]:
            revision, due = entry.body["revision"], revisions[entry.slot] + 1
            revisions[entry.slot] = revision
            if revision != due:
                found.append(f"{entry.where}: revision {revision} where {due} was due")
    return found


def compare_markers(published: Published, stream: StreamPartitions) -> list[str]:
    """Return completion markers that count other changes than the topics have, or come too early.

    A marker names all children that Spanner made, each of them is announced by each of its parents
    and begins where the parent has ended.  With key moves `stream` knows no stream partition.
    """
    announced = {
        (body["parent"], body["child"]["token"]) for body in published.bodies("PARTITION_ANNOUNCED")
    }
    found = [
        f"{child['token']}: of the beginning, and not announced"
        for body in published.bodies("STREAM_STARTED")
        for child in body["children"]
        if (_ROOT, child["token"]) not in announced
    ]
    brought = _brought(published)
    markers: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for body in published.bodies("PARTITION_FINISHED"):
        markers[body["token"]].append(body)
    for token, chunks in markers.items():
        found += [f"{token}: {text}" for text in _counts(chunks[0], brought[origin_of(token)])]
        found += [f"{token}: {text}" for text in _lineage(token, chunks, announced, stream)]
    return found


def _brought(published: Published) -> defaultdict[bytes, defaultdict[str, list[bytes]]]:
    """Return the order keys that each stream partition has brought, by topic."""
    found: defaultdict[bytes, defaultdict[str, list[bytes]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for entry in published.data:
        is_dead = entry.topic == published.topics.dead_letters
        found[entry.origin]["" if is_dead else entry.topic].append(order_key_of(entry.place))
    return found


def _counts(marker: Mapping[str, Any], brought: Mapping[str, list[bytes]]) -> Iterator[str]:
    is_old = marker.get("checksums", "BLAKE2B_64") == "BLAKE2B_64"
    summand = _blake2b_64 if is_old else _xxhash_64
    held = {
        topic: (len(keys), sum(map(summand, keys)) % _MODULUS)
        for topic, keys in brought.items()
        if topic
    }
    counted = {
        one["topic"]: (one["mods"], int.from_bytes(one["checksum"], "big"))
        for one in marker["totals"]
        if one["mods"]
    }
    if held != counted:
        yield f"its marker counts {counted}, the topics have {held}"
    parked = len(brought.get("", ()))
    if parked != marker["parked"]:
        yield f"its marker counts {marker['parked']} parked changes, there are {parked}"


def _lineage(
    token: str,
    chunks: Sequence[Mapping[str, Any]],
    announced: set[tuple[str, str]],
    stream: StreamPartitions,
) -> Iterator[str]:
    if sum(chunk["chunk"] == 0 for chunk in chunks) > 1:
        yield "finished twice"
    named = {child["token"]: child for chunk in chunks for child in chunk["children"]}
    for child in named:
        if (token, child) not in announced:
            yield f"its marker names {child}, which it has not announced"
    if token not in stream.born:
        return
    ended_us = stream.ended_us(token)
    if ended_us is None:
        yield "finished although Spanner still writes to it"
        return
    if set(named) != set(stream.children[token]):
        yield f"its marker names {sorted(named)} of {sorted(stream.children[token])}"
    if chunks[0]["end_ns"] // _NS_PER_US != ended_us:
        yield f"its marker ends at {chunks[0]['end_ns']} ns, it ended at {ended_us} us"
    for child, one in named.items():
        if one["start_ns"] // _NS_PER_US != ended_us:
            yield f"its child {child} does not start at its end"


def compare_queries(
    published: Published, queries: Sequence[Query], stream: StreamPartitions
) -> list[str]:
    """Return queries of a child before the completion markers of all its parents were written.

    The time of a marker is before its commit: a query between the two is not found.
    """
    finished: dict[str, int] = {}
    for entry in published.progress:
        if _is_marker(entry):
            finished.setdefault(entry.body["token"], entry.written_ms * 1_000)
    found = []
    for query in queries:
        if query.token not in stream.born:
            continue
        if query.start_us < max(stream.begins_us(query.token), stream.start_us):
            found.append(f"{query.token}: a query begins before its stream partition")
        found += [
            f"{query.token}: {query.worker} reads it before its parent {parent} is finished"
            for parent in stream.born[query.token]["parents"]
            if (stream.ended_us(parent) or 0) > stream.start_us
            and finished.get(parent, query.at_us) >= query.at_us
        ]
    return found


def _is_marker(entry: ProgressEntry) -> bool:
    return entry.kind == "PARTITION_FINISHED" and not entry.body["chunk"]


def _xxhash_64(order_key: bytes) -> int:
    return xxh64_intdigest(order_key, _SEED)


def _blake2b_64(order_key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(order_key, digest_size=8).digest(), "big")
