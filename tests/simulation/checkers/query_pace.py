"""A query that brings nothing new is repeated at most twelve times a minute.

One that starts where the one before it started has brought nothing new, but for records of the very
same instant.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation

_MINUTE_US = 60_000_000
_QUERIES_MAX = 12


def check(history: History) -> Iterator[Violation]:
    started: dict[tuple[str, str, int], list[int]] = {}
    for query in history.queries:
        if query.at_us is not None and query.holding:
            same = query.holding, query.token, query.start_us
            started.setdefault(same, []).append(query.at_us)
    for (_, token, start_us), times in started.items():
        for first_us, next_us in zip(times, times[_QUERIES_MAX:], strict=False):
            if next_us - first_us < _MINUTE_US:
                text = f"more than {_QUERIES_MAX} queries from {start_us} within a minute"
                yield Violation(text, token)
                break
