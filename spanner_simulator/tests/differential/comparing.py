"""Compares two runs of one workload: every step's results, then every change stream.

Yields all differences; whether one is accepted is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from differential.canonical import canonical_rows, canonical_text
from differential.comparing_streams import compare_streams
from differential.difference import Difference
from differential.running import Outcome, Run
from differential.side import Failure, Rows
from differential.steps import Query, Read, ReadWrite, told
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
    elif isinstance(ours, tuple) and isinstance(theirs, tuple):
        yield from _compare_batches(ours, theirs)
    elif ours != theirs:
        yield "success", "", ours, theirs


def _compare_batches(ours: Any, theirs: Any) -> Iterator[tuple[Any, str, Any, Any]]:
    """Row counts as far as both went, then the statement that one side failed at, or both."""
    (our_counts, our_failure), (their_counts, their_failure) = ours, theirs
    both = min(len(our_counts), len(their_counts))
    if our_counts[:both] != their_counts[:both]:
        yield "count", " (batch)", our_counts, their_counts
    if len(our_counts) > both:
        our_failure = f"count={our_counts[both]}"
    if len(their_counts) > both:
        their_failure = f"count={their_counts[both]}"
    yield from compare_failures(our_failure, their_failure)


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
