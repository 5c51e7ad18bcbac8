"""A stream partition parks keys up to the limit, and stops where it would need one key more.

Keys of its parents count, but they never stop it by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.history import Full, History, Violation
from tidegate.schemas.progress import (
    PartitionAnnounced,
    SlotChanges,
    SlotProgress,
    TokenSnapshot,
)
from tidegate.schemas.progress_chunks import ProgressAssembler


def check(history: History) -> Iterator[Violation]:
    limit = history.parked_keys_max
    if limit is None:
        return
    inherited: dict[str, set[int]] = defaultdict(set)
    snapshots: list[TokenSnapshot] = []
    assemblers: dict[int, ProgressAssembler] = defaultdict(ProgressAssembler)
    for entry in history.progress:
        whole = assemblers[entry.slot].add(entry.record.body, offset=entry.offset)
        body = None if whole is None else whole[0]
        if isinstance(body, PartitionAnnounced):
            inherited[body.child.token] |= set(body.parked_keys)
        elif isinstance(body, SlotProgress):
            snapshots += body.tokens
        elif isinstance(body, SlotChanges):
            snapshots += body.added
    for one in snapshots:
        own = set(one.parked_keys) - inherited[one.token]
        if own and len(one.parked_keys) > limit:
            text = f"has {len(one.parked_keys)} parked keys, {len(own)} of its own; {limit} may be"
            yield Violation(text, one.token)
    poison = history.all_poison if history.full else set()
    for full in history.full:
        yield from _check_stop(history, full, poison, limit)


def _check_stop(
    history: History, full: Full, poison: set[bytes], limit: int
) -> Iterator[Violation]:
    """Look for enough poison at its commit time, of keys that it does not hold."""
    names = {one.name: (one.topic, one.key) for one in history.parked}
    held = {names[name] for name in full.keys if name in names}
    found = {
        (change.topic, change.key)
        for change in history.within
        if change.commit_timestamp_us == full.commit_timestamp_us
        and change.token in (full.token, None)
        and (full.may_be_large or change.order_key in poison)
    }
    if len(full.keys) + len(found - held) <= limit:
        text = f"stopped for too many parked keys with {len(full.keys)}; {limit} may be"
        yield Violation(text, full.token)
