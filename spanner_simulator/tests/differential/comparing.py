"""Compares two runs of one workload: every step's results, then every change stream.

Yields all differences; whether one is accepted is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from differential.canonical import canonical_rows
from differential.comparing_streams import compare_streams
from differential.difference import Difference
from differential.running import Outcome, Run
from differential.side import Failure, Rows
from differential.steps import Query, Read, ReadWrite
from differential.workload import Workload


def compare_runs(workload: Workload, simulator: Run, emulator: Run) -> Iterator[Difference]:
    """All differences between the simulator's run and the emulator's."""
    pairs = zip(simulator.outcomes, emulator.outcomes, strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        yield from _compare_step(workload, number, (simulator, ours), (emulator, theirs))
    yield from compare_streams(workload, simulator, emulator)


# ---------------------------------------------------------------- steps


def _compare_step(
    workload: Workload, number: int, simulator: tuple[Run, Outcome], emulator: tuple[Run, Outcome]
) -> Iterator[Difference]:
    step = workload.steps[number]
    actions: list[Any] = list(step.actions) if isinstance(step, ReadWrite) else [step]
    for place, (ours, theirs) in enumerate(
        zip(simulator[1].results, emulator[1].results, strict=False)
    ):
        action = actions[place] if place < len(actions) else step
        where = str(action)
        for found in compare_results(
            (ours, simulator[0].commits),
            (theirs, emulator[0].commits),
            is_ordered=isinstance(action, Read)
            or (isinstance(action, Query) and action.is_ordered),
        ):
            kind, here, left, right = found
            facts = {"step": step, "action": action, "dialect": workload.dialect}
            yield Difference(kind, number, f"{where}{here}", left, right, facts)


def compare_results(
    simulator: tuple[Any, dict[str, int]], emulator: tuple[Any, dict[str, int]], *, is_ordered: bool
) -> Iterator[tuple[Any, str, Any, Any]]:
    """(kind, where, simulator, emulator) for each difference between two results of one call."""
    (ours, our_commits), (theirs, their_commits) = simulator, emulator
    if isinstance(ours, Failure) != isinstance(theirs, Failure):
        yield "success", "", _brief(ours), _brief(theirs)
    elif isinstance(ours, Failure):
        if ours.code != theirs.code:
            yield "code", "", _brief(ours), _brief(theirs)
    elif isinstance(ours, Rows) and isinstance(theirs, Rows):
        if ours.columns != theirs.columns:
            yield "columns", "", ours.columns, theirs.columns
        left = canonical_rows(ours, our_commits, is_ordered=is_ordered)
        right = canonical_rows(theirs, their_commits, is_ordered=is_ordered)
        for found in _unlike_rows(left, right):
            yield "rows", *found
        if ours.count != theirs.count:
            yield "count", "", ours.count, theirs.count
    elif isinstance(ours, list) and isinstance(theirs, list):
        # The order of tables and indexes is each side's own.
        left_only = sorted((Counter(ours) - Counter(theirs)).elements())
        right_only = sorted((Counter(theirs) - Counter(ours)).elements())
        for left, right in zip_longest(left_only, right_only, fillvalue="nothing"):
            yield "ddl", "", left, right
    elif ours != theirs:
        yield "success", "", ours, theirs


def _unlike_rows(left: list[Any], right: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """(where, simulator, emulator) for each row that differs, so that none hides behind another."""
    if len(left) != len(right):
        yield f" ({len(left)} and {len(right)} rows)", _beyond(left, right), _beyond(right, left)
        return
    for place, (ours, theirs) in enumerate(zip(left, right, strict=True)):
        if ours != theirs:
            yield f" (row {place})", ours, theirs


def _beyond(rows: list[Any], others: list[Any]) -> list[Any]:
    """Rows that others do not have, or not as often."""
    left = list(others)
    found = []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return found


def _brief(result: Any) -> str:
    if isinstance(result, Failure):
        return f"{result.code} {result.message.strip()}"
    return f"succeeds: {result}"[:300]
