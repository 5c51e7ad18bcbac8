"""Answers of Kafka, the catalogue or the registry that hold for some seconds.

A change that cannot be published makes a worker ask whether that is still so.  Where every change
of a table is such a change, asking for each of them would hold up all others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

ANSWER_HOLDS_US = 5_000_000
"""So much later what somebody has repaired is seen."""

_ANSWERS_MAX = 1_024
_NS_PER_US = 1_000
_Answer = TypeVar("_Answer")


def monotonic_us() -> int:
    """Return the microseconds of the system's monotonic clock."""
    return time.monotonic_ns() // _NS_PER_US


class FreshAnswers(Generic[_Answer]):
    """The answers of the last seconds, by what was asked; any thread may use it."""

    def __init__(self, clock_us: Callable[[], int] = monotonic_us) -> None:
        """Take the monotonic clock, in microseconds."""
        self._clock_us = clock_us
        self._lock = threading.Lock()
        self._answers: dict[Hashable, tuple[int, _Answer]] = {}

    def get(self, question: Hashable) -> _Answer | None:
        """Return the answer; None if there is none that was given in the last seconds."""
        found = self._answers.get(question)
        if found is None or self._clock_us() - found[0] >= ANSWER_HOLDS_US:
            return None
        return found[1]

    def add(self, question: Hashable, answer: _Answer) -> None:
        """Keep an answer that was given now; of very many, those that were given last."""
        with self._lock:
            self._answers.pop(question, None)
            while len(self._answers) >= _ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = self._clock_us(), answer
