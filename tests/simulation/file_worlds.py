"""Worlds of Datastream's files among the seeds: each tenth one runs one world of every source.

What they do and what must be true of them is in `tests.datastream_worlds`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.datastream_files import SOURCES
from tests.datastream_worlds import judge, run_world
from tests.simulation.silence import silenced

__all__ = ["EVERY", "FileVerdict", "file_report", "has_file_worlds", "run_file_worlds"]

EVERY = 10
"""One of so many seeds has worlds of files."""
_APART = 1_000_000
"""Keeps the numbers of these worlds apart from those that unit tests run."""


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """What the judge found in one world."""

    seed: int
    source: str
    is_growing: bool
    found: tuple[str, ...]
    events: int
    deaths: int

    @property
    def has_passed(self) -> bool:
        return not self.found


def has_file_worlds(seed: int) -> bool:
    """Whether worlds of files are run with a seed."""
    return seed % EVERY == 0


def run_file_worlds(seed: int) -> list[FileVerdict]:
    """Run a seed's worlds, one of each source: of a seed that has none, nothing.

    Of every second such seed, files are there in part first, or are written a second time.
    """
    if not has_file_worlds(seed):
        return []
    return [_run(seed, source, is_growing=seed // EVERY % 2 == 0) for source in SOURCES]


def _run(seed: int, source: str, *, is_growing: bool) -> FileVerdict:
    try:
        with silenced():
            world = run_world(_APART + seed, source=source, growing=is_growing)
    except Exception as error:  # noqa: BLE001 - a world that cannot go on is a finding
        found = (f"{type(error).__name__}: {error}",)
        return FileVerdict(seed, source, is_growing, found, 0, 0)
    found = [*judge(world), *(f"not published: {one}" for one in world.model.dead_letters[:3])]
    return FileVerdict(seed, source, is_growing, tuple(found), len(world.events), world.deaths)


def file_report(verdict: FileVerdict) -> Iterator[str]:
    """Yield what a failing world prints, and how to run it again."""
    yield f"seed {verdict.seed} failed: files of {verdict.source}"
    yield from (f"  {line}" for line in verdict.found)
    yield (
        f"  again: run_world({_APART + verdict.seed}, source={verdict.source!r}, "
        f"growing={verdict.is_growing})"
    )
