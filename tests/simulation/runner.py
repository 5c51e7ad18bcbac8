"""Runs seeds, and worlds of Datastream's files: their verdicts, and the story of what went wrong.

What worlds of files do and what must be true of them is in `tests.datastream_worlds`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tests.datastream_files import SOURCES
from tests.datastream_worlds import judge, run_world
from tests.simulation.checking import violations
from tests.simulation.history import Violation
from tests.simulation.process import silenced
from tests.simulation.weather import Weather
from tests.simulation.world import World

_STORY_LINES_MAX = 60
_TEXT_MAX = 400
_ADDRESS = re.compile(r" object at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    found: dict[str, list[Violation]]
    changes: int
    releases: int

    @property
    def has_passed(self) -> bool:
        return not self.found


def run_seed(seed: int, *, weather: Weather | None = None) -> Verdict:
    """Run one seed to its end and check it; in another weather than its own, if there is one."""
    history = World(seed, weather=weather).run()
    return Verdict(seed, violations(history), len(history.watched), len(history.released))


def story(seed: int, *, about: bytes | str | None = None) -> Iterator[str]:
    """Run a seed again and yield a line per event; with `about` only those that name it."""
    world = World(seed, is_traced=True)
    world.run()
    for at, us, who, kind, what in world.trace or ():
        if about is None or kind in ("fault", "exit", "phase", "broke") or _mentions(what, about):
            yield f"{at:>6} {us / 1e6:>10.3f} s  {who:<9} {kind:<8} {_shortened(what)}"


def failure_report(verdict: Verdict) -> Iterator[str]:
    yield f"seed {verdict.seed} failed"
    for name, found in verdict.found.items():
        yield f"  {name}: {len(found)}"
        for violation in found[:3]:
            subject = violation.subject
            named = subject.hex() if isinstance(subject, bytes) else subject
            yield f"    {violation.text}" + (f"  [{named}]" if named else "")
    subjects = [v.subject for found in verdict.found.values() for v in found if v.subject]
    if not subjects:
        yield f"  every event: make sim ARGS='--seed {verdict.seed} --story'"
        return
    yield "  its story:"
    lines = list(story(verdict.seed, about=subjects[0]))
    yield from (f"  {line}" for line in lines[-_STORY_LINES_MAX:])


def _mentions(what: Any, subject: bytes | str) -> bool:
    if what == subject:
        return True
    if is_dataclass(what) and not isinstance(what, type):
        return any(_mentions(getattr(what, field.name), subject) for field in fields(what))
    if isinstance(what, dict):
        return any(_mentions(item, subject) for pair in what.items() for item in pair)
    if isinstance(what, tuple | list | frozenset | set):
        return any(_mentions(item, subject) for item in what)
    return False


def _shortened(what: Any) -> str:
    text = what if isinstance(what, str) else _ADDRESS.sub("", repr(what))
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]} …"


EVERY = 10  # one of so many seeds has worlds of files
_APART = 1_000_000  # keeps the numbers of these worlds apart from those that unit tests run


@dataclass(frozen=True, slots=True)
class FileVerdict:
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
    return seed % EVERY == 0


def run_file_worlds(seed: int) -> list[FileVerdict]:
    """Run a seed's worlds, one of each source: of a seed that has none, nothing."""
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
    found = [
        *judge(world),
        *(f"not published: {dead_letter}" for dead_letter in world.model.dead_letters[:3]),
    ]
    return FileVerdict(seed, source, is_growing, tuple(found), len(world.events), world.deaths)


def file_report(verdict: FileVerdict) -> Iterator[str]:
    yield f"seed {verdict.seed} failed: files of {verdict.source}"
    yield from (f"  {line}" for line in verdict.found)
    yield (
        f"  again: run_world({_APART + verdict.seed}, source={verdict.source!r}, "
        f"growing={verdict.is_growing})"
    )
