"""What the programs of a run hold as it goes on: memory, files, threads, and the sizes on disk.

A sample is taken every few seconds.  In a stretch without faults, in which load and churn go on,
nothing that a program holds may grow, and neither may the consumer's checkpoint; topics grow with
what is committed, so their bytes a change may not.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MIB = 1 << 20
_BLOCK = 512
"""A file that was made in advance takes what is written."""
_EVERY_S = 10.0
_SAMPLES_MIN = 12
"""A third of a stretch with fewer is noise."""
_LIMITS = {"mib": (1.1, 16.0), "files": (1.1, 20.0), "threads": (1.1, 8.0)}
"""How often, and by how much more, the last third may hold what the second one holds.

In the first one a Java program that was started shortly before takes its heap.
"""
_STATE = (1.5, 2.0)
_FASTER = 1.3
"""How many times as fast as in its second third a size may grow in the last one."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one program holds: its process and those below it."""

    pid: int
    mib: float
    files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is at one moment."""

    at_s: float
    committed: int
    """Changes so far, or something that they are in proportion to."""
    lag_s: float | None
    """How far the newest release is behind; None before the first."""
    programs: Mapping[str, Held]
    sizes_mib: Mapping[str, float]


@dataclass(slots=True)
class Sampler:
    """Takes samples; `look` is to be called again and again."""

    seconds: Callable[[], float]
    programs: Callable[[], Mapping[str, int]]
    """The pid of each program that runs now, by name."""
    folders: Mapping[str, Path]
    progress: Callable[[], tuple[int, float | None]]
    """What is committed, and how far the newest release is behind in seconds."""
    samples: list[Sample] = field(default_factory=list)

    def look(self) -> None:
        """Take a sample if one is due."""
        now_s = self.seconds()
        if self.samples and now_s - self.samples[-1].at_s < _EVERY_S:
            return
        committed, lag_s = self.progress()
        held = {name: held_by(pid) for name, pid in self.programs().items()}
        self.samples.append(
            Sample(
                at_s=round(now_s, 1),
                committed=committed,
                lag_s=None if lag_s is None else round(lag_s, 1),
                programs={name: one for name, one in held.items() if one is not None},
                sizes_mib={name: _size_mib(folder) for name, folder in self.folders.items()},
            )
        )


def held_by(pid: int) -> Held | None:
    """Return what a process and those below it hold; None if it has ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        every = [process, *process.children(recursive=True)]
        return Held(
            pid=pid,
            mib=round(sum(one.memory_info().rss for one in every) / MIB, 1),
            files=sum(one.num_fds() for one in every),
            threads=sum(one.num_threads() for one in every),
        )
    return None


def growth_in(
    samples: Sequence[Sample], *, from_s: float, until_s: float, state: Sequence[str]
) -> Iterator[str]:
    """Yield what has grown in a stretch that nothing disturbs.

    A program that was started in the stretch is not looked at.  The sizes named in `state` may not
    grow; the others may, with what is committed.
    """
    stretch = [one for one in samples if from_s <= one.at_s <= until_s]
    third = len(stretch) // 3
    if third < _SAMPLES_MIN:
        return
    before, last = stretch[-2 * third : -third], stretch[-third:]
    for name, held in sorted(stretch[0].programs.items()):
        if any(name not in one.programs or one.programs[name].pid != held.pid for one in stretch):
            continue
        for figure, limit in _LIMITS.items():
            of = _values(before, name, figure), _values(last, name, figure)
            yield from _too_much(f"{figure} of {name}", *map(statistics.median, of), limit)
    for name in stretch[0].sizes_mib:
        if name in state:
            sizes = [
                statistics.median(one.sizes_mib[name] for one in part) for part in (before, last)
            ]
            yield from _too_much(f"MiB of {name}", *sizes, _STATE)
            continue
        slow, fast = _mib_a_change(before, name), _mib_a_change(last, name)
        if fast > slow * _FASTER:
            yield f"{name} grows by {fast * 1e6:.0f} instead of {slow * 1e6:.0f} bytes a change"


def _values(part: Sequence[Sample], name: str, figure: str) -> list[float]:
    return [float(getattr(one.programs[name], figure)) for one in part]


def _too_much(what: str, before: float, after: float, limit: tuple[float, float]) -> Iterator[str]:
    times, more = limit
    if after > before * times + more:
        yield f"{what}: {before:,.1f} became {after:,.1f}"


def _mib_a_change(part: Sequence[Sample], name: str) -> float:
    grown = part[-1].sizes_mib[name] - part[0].sizes_mib[name]
    return grown / max(part[-1].committed - part[0].committed, 1)


def _size_mib(folder: Path) -> float:
    """Return the size of the files in a folder; those that go meanwhile do not count."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.lstat().st_blocks * _BLOCK
    return round(size / MIB, 2)
