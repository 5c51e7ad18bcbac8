"""Makes a workload that shows a difference smaller, for as long as it still shows it.

First whole steps go, then mutations and statements within the steps that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from differential.steps import Commit, Query, Read, ReadWrite, Step, Write
from differential.workload import Workload

T = TypeVar("T")


def shrink(workload: Workload, shows: Callable[[Workload], bool]) -> Workload:
    """The smallest workload found that still shows what `shows` looks for."""
    size = max(len(workload.steps) // 2, 1)
    while True:
        at = 0
        while at < len(workload.steps):
            smaller = _without(workload, range(at, min(at + size, len(workload.steps))))
            if smaller.steps and shows(smaller):
                workload = smaller
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return _shrink_within(workload, shows)


def _without(workload: Workload, gone: range) -> Workload:
    """Without some steps; reads at a step that is gone become strong ones."""
    kept = [number for number in range(len(workload.steps)) if number not in gone]
    place = {number: new for new, number in enumerate(kept)}
    steps: list[Step] = []
    for number in kept:
        step = workload.steps[number]
        if isinstance(step, Read | Query) and step.at is not None:
            step = replace(step, at=place.get(step.at))
        steps.append(step)
    return replace(workload, steps=tuple(steps))


def _shrink_within(workload: Workload, shows: Callable[[Workload], bool]) -> Workload:
    number = 0
    while number < len(workload.steps):
        for step in _smaller_steps(workload.steps[number]):
            steps = (*workload.steps[:number], step, *workload.steps[number + 1 :])
            smaller = replace(workload, steps=steps)
            if shows(smaller):
                workload = smaller
                break
        else:
            number += 1
    return workload


def _smaller_steps(step: Step) -> Iterator[Step]:
    """A step without one of its mutations, statements or rows."""
    if isinstance(step, Commit | ReadWrite):
        for some in _each_without_one(step.mutations):
            yield replace(step, mutations=some)
        for at, one in enumerate(step.mutations):
            if isinstance(one, Write) and len(one.rows) > 1:
                for rows in _each_without_one(one.rows):
                    made = (
                        *step.mutations[:at],
                        replace(one, rows=rows),
                        *step.mutations[at + 1 :],
                    )
                    yield replace(step, mutations=made)
    if isinstance(step, ReadWrite):
        for actions in _each_without_one(step.actions):
            yield replace(step, actions=actions)


def _each_without_one(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for at in range(len(items)):
        yield (*items[:at], *items[at + 1 :])
