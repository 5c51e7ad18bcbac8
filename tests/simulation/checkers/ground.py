"""P6: what no restart can repair stops the fleet, with an error that names it.

A right that is lost stops the worker that Kafka denies access: it does not go on and ask again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import History, Violation

_NEEDS_AN_OPERATOR = {"TopicsChangedError", "StreamChangedError", "ProgressLost", "ConfigError"}
"""Errors that end a worker with exit code 2: no restart helps before somebody has acted."""


def check(history: History) -> Iterator[Violation]:
    for fault in history.ground:
        stops = [
            stop for stop in history.stops if stop.at >= fault.at and stop.error in fault.errors
        ]
        if not any(subject in stop.text for stop in stops for subject in fault.subjects):
            yield Violation(
                f"{fault.kind}: no worker has stopped and named it", min(fault.subjects)
            )
    for process, times in Counter(denial.process for denial in history.denials).items():
        if times > 1:
            yield Violation(f"{process} went on without a right: it was denied {times} times")
    for topic, batches in history.planned_over_change.items():
        # A topic may change in the middle of a batch, after the batch has looked.
        if len(batches) > 1:
            yield Violation(f"{len(batches)} batches were planned after the topic changed", topic)
    for name in history.survivors:
        yield Violation(f"{name} still runs a minute after {history.ground[-1].kind}")
    for stop in history.stops:
        if stop.error in _NEEDS_AN_OPERATOR:
            if stop.exit_code != 2:
                yield Violation(f"{stop.worker} stopped with {stop.exit_code}: {stop.text}")
        elif stop.error == "PositionExpired" and not (
            "lost_from=" in stop.text and "lost_until=" in stop.text
        ):
            yield Violation(f"{stop.worker} does not name the missing interval: {stop.text}")
