"""A message that its topic cannot take stops its worker by name, and is not tried without end.

Nothing else may stop a worker for a size: a limit that was raised in time counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import History, Refusal, TooLargeStop, Violation

ATTEMPTS_MAX = 3


def check(history: History) -> Iterator[Violation]:
    for refusal in history.refusals:
        if refusal.size_bytes > refusal.known_bytes_max:
            yield Violation(
                f"{refusal.worker} produced {refusal.size_bytes} bytes for {refusal.topic}, "
                f"and never knew of a limit above {refusal.known_bytes_max}"
            )
    yield from _check_attempts(history)
    for stop in history.too_large:
        yield from _check_stop(history, stop)


def _check_attempts(history: History) -> Iterator[Violation]:
    """Count refusals for one cause.

    A change is a cause of its own for as long as the process lives: that its topic has taken other
    changes says nothing about it.  A progress record is another one after each commit of its slot.
    """
    records = Counter(
        (one.process, one.topic, one.record)
        for one in history.refusals
        if one.record[1] is not None
    )
    for (process, topic, record), count in records.items():
        if count > ATTEMPTS_MAX:
            yield Violation(f"{process} tried {record} of {topic} {count} times")
    attempts: Counter[tuple[str, str, int]] = Counter()
    steps = sorted([*history.refusals, *history.fenced], key=lambda step: step.at)
    for step in steps:
        if not isinstance(step, Refusal):
            for cause in list(attempts):
                if cause[-1] in step.covers:
                    del attempts[cause]
            continue
        cause = (step.process, step.topic, step.slot)
        attempts[cause] += 1
        if attempts[cause] == ATTEMPTS_MAX + 1:
            yield Violation(f"{step.worker} tried a message of {step.topic} without end")


def _check_stop(history: History, stop: TooLargeStop) -> Iterator[Violation]:
    who = f"{stop.worker} stopped for {stop.size_bytes} bytes in {stop.topic}"
    if stop.size_bytes <= stop.limit_bytes:
        yield Violation(f"{who}, which its limit of {stop.limit_bytes} allows")
    at_us = stop.commit_timestamp_us
    named = (stop.topic, at_us)
    if named not in {(change.topic, change.commit_timestamp_us) for change in history.committed}:
        yield Violation(f"{who} and named no change that was committed")
    elif _smallest_since(history, stop, at_us or 0) >= stop.size_bytes:
        yield Violation(f"{who}, which its topic has taken ever since the change was committed")


def _smallest_since(history: History, stop: TooLargeStop, since_us: int) -> int:
    """Return the smallest limit that the topic had between a moment and the stop."""
    of_topic = [limit for limit in history.limits if limit.topic == stop.topic]
    before = [limit for limit in of_topic if limit.at_us <= since_us][-1:] or of_topic[:1]
    after = [limit for limit in of_topic if since_us < limit.at_us <= stop.at_us]
    return min(limit.bytes_max for limit in (*before, *after))
