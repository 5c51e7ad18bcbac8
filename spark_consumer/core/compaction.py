"""Chooses adjacent small files of a table to be rewritten as one, in work of bounded size.

A file's level is the power of `files_min` that its rows reach.  `files_min` files of a level at the
end of a table become one file of the next level; where a larger file follows, nothing will be added
between, and two files are enough.  So a table has at most about `files_min` small files for each
level, each row is rewritten about once for each level, and the order of files stays: between its
first and its last file a run has neither a file of another partition nor one that is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

_FULL_PART = 2
"""A file of more than one in this many parts of the target is not rewritten."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live file of a table; `path` has the form of the table's log.

    `place` orders the files of a partition; `partition` are its values by column, as text.  `rows`
    is None for a file that is never rewritten.
    """

    path: str
    size: int
    rows: int | None
    place: tuple[Any, ...]
    modified_ms: int
    partition: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The number of small files that make a new file, and the new file's largest size in bytes."""

    files_min: int
    target_bytes: int


@dataclass(slots=True)
class CompactionBudget:
    """The rest of a batch's limits on reading."""

    files: int
    bytes: int

    def take(self, run: Sequence[DataFile]) -> None:
        """Subtract a run that was chosen within this budget."""
        self.files -= len(run)
        self.bytes -= sum(file.size for file in run)


def choose_run(
    files: Sequence[DataFile], limits: CompactionLimits, budget: CompactionBudget
) -> tuple[DataFile, ...]:
    """Return the next files to rewrite as one, in their order; none if nothing is due.

    A run has two files at least, is within the budget, and has no more bytes than the target.
    Rewriting run after run ends, since each leaves fewer files.
    """
    # Text of partitions is compared with None.
    by_partition = sorted(files, key=lambda file: (repr(file.partition), file.place))
    for _, group in groupby(by_partition, key=lambda file: file.partition):
        run = _run_of_partition(tuple(group), limits, budget)
        if run:
            return run
    return ()


def _run_of_partition(
    files: tuple[DataFile, ...], limits: CompactionLimits, budget: CompactionBudget
) -> tuple[DataFile, ...]:
    levels = [_level(file, limits) for file in files]
    for level in range(
        1 + max((file_level for file_level in levels if file_level is not None), default=-1)
    ):
        for first, end in _stretches(levels, level):
            due = end
            if end == len(files):  # more may follow
                of_level = [n for n in range(first, end) if levels[n] == level]
                if len(of_level) < limits.files_min:
                    continue
                due = of_level[-1] + 1
            run = _within(files[first:due], limits, budget)
            if len(run) > 1:
                return run
    return ()


def _level(file: DataFile, limits: CompactionLimits) -> int | None:
    """Return a file's level; None if it is not rewritten."""
    if file.rows is None or file.size * _FULL_PART > limits.target_bytes:
        return None
    level, rows = 0, file.rows
    while rows >= limits.files_min:
        rows //= limits.files_min
        level += 1
    return level


def _stretches(levels: Sequence[int | None], level: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the longest stretches of files up to a level."""
    first: int | None = None
    for n, file_level in enumerate([*levels, None]):
        if file_level is not None and file_level <= level:
            first = n if first is None else first
        elif first is not None:
            yield first, n
            first = None


def _within(
    files: Sequence[DataFile], limits: CompactionLimits, budget: CompactionBudget
) -> tuple[DataFile, ...]:
    """Return the first files, as many as the limits allow."""
    left = min(limits.target_bytes, budget.bytes)
    run: list[DataFile] = []
    for file in files[: max(budget.files, 0)]:
        left -= file.size
        if left < 0:
            break
        run.append(file)
    return tuple(run)
