"""P1: every committed change that the stream watches is in Kafka, and in the output (P5)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    """Look at what lies at or below the last watermark; liveness sees to the rest."""
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
