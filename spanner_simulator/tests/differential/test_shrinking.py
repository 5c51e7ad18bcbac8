"""Shrinking keeps what is looked for, and little else."""

from __future__ import annotations

from differential.kinds import GOOGLE
from differential.shrinking import shrink
from differential.steps import Commit, Keys, Read, ReadWrite, Write
from differential.workload import Workload


def insert(key: int, *more: int) -> Write:
    return Write("insert", "T", ("K",), tuple((str(one),) for one in (key, *more)))


def workload(*steps) -> Workload:
    return Workload(1, GOOGLE, frozenset(), one_partition=True, steps=steps)


def writes(made: Workload) -> list[str]:
    return [
        row[0] for step in made.steps for one in getattr(step, "mutations", ()) for row in one.rows
    ]


def test_what_is_looked_for_is_all_that_is_left():
    large = workload(
        *(Commit((insert(number),)) for number in range(20)),
        Commit((insert(20), insert(21, 22, 23), insert(24))),
        ReadWrite((Read("T", ("K",), Keys(is_all=True)),), (insert(25), insert(26))),
        *(Commit((insert(number),)) for number in range(30, 40)),
    )
    small = shrink(large, lambda made: {"7", "22", "26"} <= set(writes(made)))

    assert writes(small) == ["7", "22", "26"]
    assert len(small.steps) == 3
    assert small.steps[-1].actions == ()


def test_a_read_at_a_step_follows_it_and_does_without_it():
    read = Read("T", ("K",), Keys(is_all=True), at=2)
    steps = (Commit((insert(0),)), Commit((insert(1),)), Commit((insert(2),)), read)

    kept = shrink(
        workload(*steps),
        lambda made: "2" in writes(made) and made.steps[-1] in (read, at(1), at(0)),
    )
    alone = shrink(workload(*steps), lambda made: isinstance(made.steps[-1], Read))

    assert at(0) == kept.steps[-1]
    assert (at(None),) == alone.steps


def at(step: int | None) -> Read:
    return Read("T", ("K",), Keys(is_all=True), at=step)


def test_what_nothing_smaller_shows_stays_as_it_is():
    made = workload(Commit((insert(1), insert(2))), Commit((insert(3),)))

    assert made == shrink(made, lambda one: one == made)
