"""P1: every committed change that the stream watches is in Kafka once, whatever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import SlotChanges, SlotProgress


def nothing_lost(history: History) -> Iterator[Violation]:
    """Every committed change that the stream watches is in Kafka, and in the output (P5)."""
    watermark_us = max((claim.watermark_us for claim in history.claims), default=-1)
    published = {record.order_key for record in history.published}
    released = {key for release in history.released for key in release.order_keys}
    late = set(history.late)
    through_us = max((release.through_us for release in history.released), default=-1)
    for change in history.watched:
        at_us = change.commit_timestamp_us
        if at_us <= watermark_us and change.order_key not in published:
            yield Violation("committed, below the watermark, not in Kafka", change.order_key)
        elif change.order_key in history.skipped:
            continue  # it had expired when the reader began
        elif at_us <= through_us and change.order_key not in released:
            place = "only in the side table" if change.order_key in late else "not in the output"
            yield Violation(f"committed, below the last release, {place}", change.order_key)
    yield from _check_redriven(history, released | late, through_us)


def _check_redriven(history: History, arrived: set[bytes], through_us: int) -> Iterator[Violation]:
    """Look at what was put back: it is in the output or aside, once a batch had read it."""
    due = {
        key for key, one in history.redriven.items() if one.commit_timestamp_us <= through_us
    } - history.skipped
    batches = sorted(history.claims, key=lambda claim: claim.batch)
    if not due or not batches or history.ground:
        return
    # The last batch may not have been carried out.
    read = next((c.read for c in reversed(batches) if c.batch < batches[-1].batch), {})
    for record in history.published:
        is_read = read.get(record.topic, {}).get(record.topic_partition, 0) > record.offset
        is_due = record.order_key in due and not record.is_copy
        if is_due and is_read and record.order_key not in arrived:
            text = "put back, read, and neither in the output nor late"
            yield Violation(text, record.order_key)


def nothing_twice(history: History) -> Iterator[Violation]:
    """No change stands twice, neither in Kafka nor in the output, and none was made up."""
    redriven = history.redriven
    committed = {change.order_key for change in history.watched} | redriven.keys()
    published = Counter(r.order_key for r in history.published if not r.is_copy)
    released = Counter(key for release in history.released for key in release.order_keys)
    for where, counted in (("Kafka", published), ("the output", released)):
        for order_key, times in counted.items():
            if times > 1:
                yield Violation(f"{times} times in {where}", order_key)
            if order_key not in committed:
                yield Violation(f"in {where}, but never committed within the stream", order_key)
    copied = {record.order_key for record in history.published if record.is_copy}
    arrived = Counter(key for key in history.late if key in redriven and key not in copied)
    for order_key, times in arrived.items():
        if times + released[order_key] > 1:
            yield Violation("put back, and more than once in the output or late", order_key)


def single_writer(history: History) -> Iterator[Violation]:
    """Nobody but the slot's owner publishes for it, and every commit was fenced for all its slots.

    A slot's snapshots are the proof in the log: each follows the one before it by one revision.
    """
    for commit in history.fenced:
        if not commit.has_checked:
            yield Violation(f"{commit.worker} committed without a fence (event {commit.at})")
        foreign = sorted(commit.covers - commit.owned)
        if foreign:
            yield Violation(f"{commit.worker} wrote for foreign slots {foreign} ({commit.at})")
        bare = sorted(commit.covers - commit.offset_slots)
        if bare:
            yield Violation(f"{commit.worker}'s fence lacks slots {bare} ({commit.at})")
        if commit.after_fence:
            yield Violation(
                f"{commit.worker} produced {commit.after_fence} behind its fence ({commit.at})"
            )
    revisions: dict[int, int] = {}
    for entry in history.progress:
        body = entry.record.body
        if not isinstance(body, SlotProgress | SlotChanges) or body.chunk:
            continue
        expected = revisions.get(entry.slot, 0) + 1
        revisions[entry.slot] = body.revision
        if body.revision != expected:
            text = f"slot {entry.slot}: revision {body.revision} where {expected} was due"
            yield Violation(f"{text}, by {entry.record.worker}")
