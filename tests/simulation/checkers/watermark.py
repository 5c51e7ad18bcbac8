"""P4: a watermark is never early and never goes back.

Early would be: a change at or below it that the reader, at the offsets of that batch, had not got.
What was parked and put back comes late, and is said to do so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tests.simulation.history import History, Published, Violation
from tidegate.schemas.order_key import OrderKey


def check(history: History) -> Iterator[Violation]:
    redriven = history.redriven
    records: list[tuple[int, Published]] = sorted(
        (
            (OrderKey.decode(record.order_key).commit_timestamp_us, record)
            for record in history.published
            if not record.is_copy and record.order_key not in redriven
        ),
        key=lambda pair: pair[0],
    )
    times = [at_us for at_us, _ in records]
    published = {record.order_key for _, record in records}
    unpublished = sorted(
        (change.commit_timestamp_us, change.order_key)
        for change in history.watched
        if change.order_key not in published
    )
    before_us, checked = -1, 0
    for claim in history.claims:
        if claim.watermark_us < before_us:
            text = f"batch {claim.batch}: from {before_us} back to {claim.watermark_us}"
            yield Violation(text)
        if history.end_us is not None and claim.watermark_us > history.end_us:
            yield Violation(f"batch {claim.batch}: past the end of the stream, which is not read")
        # What an earlier claim has covered was read by then, and reading never goes back.
        covered = bisect_right(times, claim.watermark_us)
        for at_us, record in records[checked:covered]:
            if claim.read.get(record.topic, {}).get(record.topic_partition, 0) <= record.offset:
                text = f"batch {claim.batch}: {claim.watermark_us - at_us} µs early"
                yield Violation(text, record.order_key)
        for at_us, order_key in unpublished:
            if before_us < at_us <= claim.watermark_us:
                yield Violation(f"batch {claim.batch}: passed what is not in Kafka", order_key)
        before_us, checked = max(before_us, claim.watermark_us), max(covered, checked)
