"""P5: mirrors stand at an older release no longer than the settings say, and never go back."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    """A batch that was decided later than that after the last merge has to merge."""
    merged_us: dict[int, int] = {}
    highest = -1
    for sight in sorted(history.mirror_sights, key=lambda one: one.batch):
        stands_at = -1 if sight.mirror is None else sight.mirror
        if not highest <= stands_at <= sight.newest:
            text = f"after batch {sight.batch} the mirror stands at {stands_at}, after {highest}"
            yield Violation(f"{text}; the newest release is {sight.newest}")
        highest = max(highest, stands_at)
        since_us = merged_us.setdefault(stands_at, sight.decided_us)
        is_late = sight.decided_us - since_us >= sight.every_us or sight.has_ended or stands_at < 0
        if stands_at < sight.newest and is_late:
            text = f"after batch {sight.batch} the mirror stands at {stands_at} of {sight.newest}"
            yield Violation(f"{text} since {sight.decided_us - since_us} µs")
