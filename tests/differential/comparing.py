"""Compares two runs of one workload: every step's results, then every change stream.

Yields all differences; whether one is accepted is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tests.differential.canonical import canonical_rows, canonical_text
from tests.differential.comparing_streams import compare_streams
from tests.differential.difference import Difference
from tests.differential.running import Outcome, Run
from tests.differential.side import Failure, Rows
from tests.differential.steps import Query, Read, ReadWrite, told
from tests.differential.workload import Workload

__all__ = ["compare_results", "compare_runs"]


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
        where = told(action)
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
    if isinstance(ours, Failure) or isinstance(theirs, Failure):
        yield from compare_failures(ours, theirs)
    elif isinstance(ours, Rows) and isinstance(theirs, Rows):
        if ours.columns != theirs.columns:
            yield "columns", "", ours.columns, theirs.columns
        left = canonical_rows(ours, our_commits, is_ordered=is_ordered)
        right = canonical_rows(theirs, their_commits, is_ordered=is_ordered)
        if left != right:
            yield "rows", *_first_rows(left, right)
        if ours.count != theirs.count:
            yield "count", "", ours.count, theirs.count
    elif isinstance(ours, list) and isinstance(theirs, list):
        # The order of tables and indexes is each side's own.
        left_only = sorted(set(ours) - set(theirs))
        right_only = sorted(set(theirs) - set(ours))
        for left, right in zip_longest(left_only, right_only, fillvalue="nothing"):
            yield "ddl", "", left, right
    elif isinstance(ours, tuple) and isinstance(theirs, tuple):
        # Where one side's batch went further, its failure says so.
        if ours[0] != theirs[0] and (ours[1] is None) == (theirs[1] is None):
            yield "count", " (batch)", ours[0], theirs[0]
        yield from compare_failures(ours[1], theirs[1])
    elif ours != theirs:
        yield "success", "", ours, theirs


def _first_rows(left: list[Any], right: list[Any]) -> tuple[str, Any, Any]:
    if len(left) != len(right):
        only_left = [row for row in left if row not in right]
        only_right = [row for row in right if row not in left]
        return f" ({len(left)} and {len(right)} rows)", only_left[:3], only_right[:3]
    for place, (ours, theirs) in enumerate(zip(left, right, strict=True)):
        if ours != theirs:
            return f" (row {place})", ours, theirs
    return "", left, right


def compare_failures(ours: Any, theirs: Any) -> Iterator[tuple[Any, str, Any, Any]]:
    """The same for two outcomes of which one at least may be a failure."""
    if not isinstance(ours, Failure) or not isinstance(theirs, Failure):
        if isinstance(ours, Failure) or isinstance(theirs, Failure):
            yield "success", "", _brief(ours), _brief(theirs)
        return
    left, right = canonical_text(ours.message), canonical_text(theirs.message)
    if ours.code != theirs.code:
        yield "code", "", f"{ours.code} {left}", f"{theirs.code} {right}"
    elif left != right:
        yield "text", f" ({ours.code})", left, right


def _brief(result: Any) -> str:
    if isinstance(result, Failure):
        return f"{result.code} {canonical_text(result.message)}"
    return f"succeeds: {result}"[:300]
