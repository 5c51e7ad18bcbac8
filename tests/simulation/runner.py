"""Runs seeds: one at a time, its verdict, and the story of what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tests.simulation.checking import violations
from tests.simulation.history import Violation
from tests.simulation.weather import Weather
from tests.simulation.world import World

__all__ = ["Verdict", "failure_report", "run_seed", "story"]

_STORY_LINES_MAX = 60
_TEXT_MAX = 400
_ADDRESS = re.compile(r" object at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checkers found in one seed's run."""

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
    """Run a seed again and yield a line per event; with `about` only those that name it.

    A run is its seed, so that the second run repeats the first one.
    """
    world = World(seed, is_traced=True)
    world.run()
    for at, us, who, kind, what in world.trace or ():
        if about is None or kind in ("fault", "exit", "phase", "broke") or _mentions(what, about):
            yield f"{at:>6} {us / 1e6:>10.3f} s  {who:<9} {kind:<8} {_shortened(what)}"


def failure_report(verdict: Verdict) -> Iterator[str]:
    """Yield what a failing seed prints: the violations, and the story of the first subject."""
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
