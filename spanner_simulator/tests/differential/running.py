"""Runs a workload on two sides, step by step side by side, and reads what their streams kept.

When a step succeeds on one side only, the sides hold different rows from there on: nothing that
follows would say more, so the run ends with that step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from differential.side import Failure, Rows, Side, SideDownError
from differential.steps import (
    Action,
    ChangeSchema,
    Commit,
    Query,
    Read,
    ReadWrite,
    ShowSchema,
    Step,
)
from differential.stream_reading import StreamReading, read_stream
from differential.workload import Workload


def padded(stamp: str) -> str:
    """A timestamp that can be compared with others as text."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return f"{whole}.{fraction.ljust(9, '0')}"


def spellings(stamp: str) -> set[str]:
    """A timestamp with its fraction as short as can be, and with microseconds."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    short = f"{whole}.{fraction}".rstrip("0").rstrip(".")
    return {f"{short}Z", f"{whole}.{fraction.ljust(6, '0')}Z"}


@dataclass(slots=True)
class Outcome:
    """What a step came to: a result per call, and the commit timestamp where there is one."""

    results: list[Any] = field(default_factory=list)
    commit: str | None = None

    @property
    def failure(self) -> Failure | None:
        """Why the step's effect did not happen."""
        last = self.results[-1] if self.results else None
        return last if isinstance(last, Failure) else None


@dataclass(slots=True)
class Run:
    """One side's history: an outcome per step, commits by timestamp, the streams' contents."""

    side: Side
    outcomes: list[Outcome] = field(default_factory=list)
    commits: dict[str, int] = field(default_factory=dict)
    # DDL tells no commit timestamp: only between which two moments it ran.
    windows: dict[int, tuple[str, str]] = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)
    streams: dict[str, StreamReading | Failure] = field(default_factory=dict)

    def commit_of(self, step: int | None) -> str | None:
        """The commit timestamp of a step; None where it did not commit."""
        return None if step is None else self.outcomes[step].commit

    def step_of(self, commit: str) -> int | None:
        """The step that committed at a timestamp."""
        if (step := self.commits.get(commit)) is not None:
            return step
        inside = (
            step
            for step, (first, last) in self.windows.items()
            if padded(first) <= padded(commit) <= padded(last)
        )
        return next(inside, None)

    def note(self, step: int, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.commit is not None:
            for text in spellings(outcome.commit):
                self.commits[text] = step


def run_workload(workload: Workload, sides: tuple[Side, Side], disturb: Any = None) -> list[Run]:
    """Both sides' histories. `disturb(step, streams)` may move stream partitions between steps.

    Raises `SideDownError`.
    """
    runs = [Run(side) for side in sides]
    for number, step in enumerate(workload.steps):
        for run in runs:
            tells_no_time = isinstance(step, ChangeSchema)
            before = run.side.now() if tells_no_time else ""
            try:
                run.note(number, _perform(step, run))
            except SideDownError as error:
                raise SideDownError(error.side, f"{error}; step {number}, {step}") from error
            if tells_no_time:
                run.windows[number] = (before, run.side.now())
            if isinstance(step, ChangeSchema) and run.outcomes[-1].failure is None:
                for name in step.starts:
                    run.starts[name] = run.side.now()
        if have_parted(workload, runs[0], runs[1]):
            break
        if disturb is not None and not isinstance(step, ChangeSchema):
            disturb(number, list(runs[0].starts))
    for run in runs:
        end = run.side.now()
        for name, start in run.starts.items():
            run.streams[name] = whole = read_stream(
                run.side, name, dialect=workload.dialect, start=start, end=end
            )
            if isinstance(whole, StreamReading):
                whole.faults += _faults_of_a_window(workload, run, whole)
    return runs


def _faults_of_a_window(workload: Workload, run: Run, whole: StreamReading) -> Iterator[str]:
    """What a stream tells from one of its commits to another must be what the whole has there."""
    commits = sorted({one.commit_timestamp for one in whole.records})
    if not commits:
        return
    chance = Random(f"window {workload.seed} {whole.name}")
    start, end = sorted(chance.choices(commits, k=2))
    part = read_stream(run.side, whole.name, dialect=workload.dialect, start=start, end=end)
    if isinstance(part, Failure):
        yield f"a query from {start} to {end}: {part.code} {part.message}"
        return
    yield from part.faults
    expected = [one for one in whole.records if start <= one.commit_timestamp <= end]
    if sorted(map(repr, part.records)) != sorted(map(repr, expected)):
        yield f"from {start} to {end} {len(part.records)} records, the whole has {len(expected)}"


def have_parted(workload: Workload, one: Run, two: Run) -> bool:
    """Whether the last step had its effect on one side only; what only reads has none."""
    first, second = one.outcomes[-1], two.outcomes[-1]
    if isinstance(workload.steps[len(one.outcomes) - 1], Read | Query | ShowSchema):
        return False
    if (first.commit is None) != (second.commit is None):
        return True
    return (first.failure is None) != (second.failure is None)


def _perform(step: Step, run: Run) -> Outcome:
    side = run.side
    outcome = Outcome()
    match step:
        case ChangeSchema(statements):
            outcome.results.append(side.change_schema(statements))
        case ShowSchema():
            outcome.results.append(side.schema())
        case Commit(mutations, tag):
            _commit(outcome, side, mutations, transaction=None, tag=tag)
        case ReadWrite():
            _read_write(step, side, outcome)
        case Read() | Query():
            at = run.commit_of(step.at)
            outcome.results.append(_act(step, side, transaction=None, at=at, sequence=0))
    return outcome


def _commit(
    outcome: Outcome, side: Side, mutations: Any, *, transaction: bytes | None, tag: str
) -> None:
    done = side.commit(mutations, transaction=transaction, tag=tag)
    if isinstance(done, Failure):
        outcome.results.append(done)
    else:
        outcome.results.append(None)
        outcome.commit = done


def _read_write(step: ReadWrite, side: Side, outcome: Outcome) -> None:
    transaction = side.begin("read_write", tag=step.tag)
    if isinstance(transaction, Failure):
        outcome.results.append(transaction)
        return
    for sequence, action in enumerate(step.actions, start=1):
        done = _act(action, side, transaction=transaction, at=None, sequence=sequence)
        outcome.results.append(done)
        # The emulator repeats a statement's failure for whatever follows in its transaction.
        if isinstance(done, Failure):
            side.rollback(transaction)
            return
    if step.commits:
        _commit(outcome, side, step.mutations, transaction=transaction, tag=step.tag)
        if outcome.commit is None:
            # On the emulator a refused commit may leave its locks behind, and hang what follows.
            side.rollback(transaction)
    else:
        outcome.results.append(side.rollback(transaction))


def _act(
    action: Action, side: Side, *, transaction: bytes | None, at: str | None, sequence: int
) -> Rows | Failure:
    if isinstance(action, Read):
        return side.read(action, transaction=transaction, at=at)
    return side.execute(
        action.sql, action.parameters, transaction=transaction, at=at, sequence=sequence
    )
