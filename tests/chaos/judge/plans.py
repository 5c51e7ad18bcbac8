"""The plans of a consumer: each batch is planned once, and no watermark is early or goes back."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.judge.topics import DataEntry


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch's watermark, and the offsets up to which it had read."""

    batch: int
    watermark_us: int
    read: Mapping[str, Mapping[int, int]]
    """Topic -> topic partition -> next offset."""


@dataclass(slots=True)
class PlanRecorder:
    """Keeps every plan that a checkpoint ever had: a plan that changes is a batch decided twice.

    `look` is to be called again and again while the consumer runs, as old plans are deleted.
    """

    checkpoint: Path
    plans: list[Plan] = field(default_factory=list)
    _texts: dict[int, bytes] = field(default_factory=dict)

    def look(self) -> None:
        """Take note of plans that are new."""
        folder = self.checkpoint / "gate" / "plans"
        paths = folder.glob("[!.]*.json") if folder.is_dir() else ()
        for batch, path in sorted((int(path.stem), path) for path in paths):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            if self._texts.get(batch) == text:
                continue
            self._texts[batch] = text
            plan = json.loads(text)
            read = {
                topic: {int(number): int(end) for number, end in ends.items()}
                for topic, ends in plan["end_offsets"].items()
            }
            self.plans.append(Plan(batch, int(plan["through_us"]), read))


def compare_plans(plans: Sequence[Plan], entries: Sequence[DataEntry]) -> list[str]:
    """Return batches that were planned twice, and watermarks that are early or go back.

    Early is one that has passed a published change which its batch had not read.
    """
    times = Counter(plan.batch for plan in plans)
    twice = [f"batch {batch} was planned {n} times" for batch, n in times.items() if n > 1]
    return [*twice, *_early(plans, entries)]


def _early(plans: Sequence[Plan], entries: Sequence[DataEntry]) -> Iterator[str]:
    changes = sorted(entries, key=lambda one: one.place)
    times_us = [one.place.commit_timestamp_us for one in changes]
    before_us, checked = -1, 0
    for plan in plans:
        if plan.watermark_us < before_us:
            yield f"batch {plan.batch}: from {before_us} back to {plan.watermark_us}"
        # What an earlier watermark has covered was read by then, and reading never goes back.
        covered = bisect_right(times_us, plan.watermark_us)
        for change in changes[checked:covered]:
            if plan.read.get(change.topic, {}).get(change.topic_partition, 0) <= change.offset:
                late_us = plan.watermark_us - change.place.commit_timestamp_us
                yield f"batch {plan.batch}: {late_us} us early, has not read {change.where}"
        before_us, checked = max(before_us, plan.watermark_us), max(covered, checked)
