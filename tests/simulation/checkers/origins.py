"""P4: from Kafka alone, without a value, what each stream partition published is complete.

Each record names its stream partition in a header.  The records of one name add up to the markers
of all stream partitions that have this name, once all of them have finished.  What was parked and
put back is marked as such, and not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS, origin_of
from tidegate.schemas.progress import (
    ChecksumKind,
    PartitionAnnounced,
    PartitionFinished,
    StreamStarted,
)

__all__ = ["check"]


def check(history: History) -> Iterator[Violation]:
    tokens = {change.order_key: change.token for change in history.committed}
    for record in history.published:
        token = tokens.get(record.order_key)
        if record.origin is None or token is None or record.is_copy:
            continue
        if record.origin != origin_of(token):
            text = f"names {record.origin.hex()!r} where {token} brought it"
            yield Violation(text, record.order_key)
    if all(record.origin is not None for record in history.published):
        yield from _incomplete(history)


def _incomplete(history: History) -> Iterator[Violation]:
    """Prove each name as a reader of the topics does."""
    finished = _finished(history)
    open_names = {origin_of(token) for token in _announced(history) - finished.keys()}
    names: dict[bytes, list[PartitionFinished]] = defaultdict(list)
    for token, marker in finished.items():
        names[origin_of(token)].append(marker)
    found: dict[bytes, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    redriven = history.redriven
    for record in history.published:
        is_counted = not record.is_copy and record.order_key not in redriven
        if is_counted and record.origin is not None:
            found[record.origin][record.topic].append(record.order_key)
    for name, markers in names.items():
        if name in open_names:
            continue
        kinds = {marker.checksums for marker in markers}
        kind = kinds.pop() if len(kinds) == 1 else None
        read = {topic: _read(order_keys, kind) for topic, order_keys in found[name].items()}
        marked = _marked(markers, kind)
        if read != marked:
            text = f"{name.hex()} has {read} in Kafka, its markers count {marked}"
            yield Violation(text, markers[0].token)


def _announced(history: History) -> set[str]:
    bodies = [entry.record.body for entry in history.progress]
    announced = {body.child.token for body in bodies if isinstance(body, PartitionAnnounced)}
    started = (body.children for body in bodies if isinstance(body, StreamStarted))
    return announced | {child.token for children in started for child in children}


def _finished(history: History) -> dict[str, PartitionFinished]:
    bodies = (entry.record.body for entry in history.progress)
    return {
        body.token: body
        for body in bodies
        if isinstance(body, PartitionFinished) and not body.chunk
    }


def _read(order_keys: list[bytes], kind: ChecksumKind | None) -> tuple[int, int]:
    checksum = sum(map(CHECKSUMS[kind], order_keys)) % CHECKSUM_MODULUS if kind is not None else 0
    return len(order_keys), checksum


def _marked(
    markers: list[PartitionFinished], kind: ChecksumKind | None
) -> dict[str, tuple[int, int]]:
    """Add up the totals; checksums of two kinds have no sum."""
    marked: dict[str, tuple[int, int]] = {}
    for total in (total for marker in markers for total in marker.totals):
        mods, checksum = marked.get(total.topic, (0, 0))
        added = total.checksum if kind is not None else 0
        marked[total.topic] = mods + total.mods, (checksum + added) % CHECKSUM_MODULUS
    return marked
