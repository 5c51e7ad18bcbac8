"""SIGKILL at moments worth dying in: a seeded step is waited for in the victim's log.

The step that a kill hit is read from the log afterwards; aiming only sees to it that over many
kills every step is hit.  What was killed is started again at once under the same name.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.report import Kill
from tidegate.local_stack.steps import StepFollower, wait_for_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.local_stack.programs import Program

__all__ = ["CONSUMER_STEPS", "WORKER_STEPS", "Killer", "TimedKill"]

WORKER_STEPS = ("begin", "publish", "snapshot", "fence", "commit")
CONSUMER_STEPS = (
    "plan",
    "release",
    "sink-changelog",
    "sink-mirror",
    "pending",
    "manifest",
    "state",
)

_CYCLE_DEADLINE_S = 300.0
_AIM_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class TimedKill:
    """A kill, and when it was by the clock that commit timestamps are taken from."""

    kill: Kill
    at_us: int


@dataclass(slots=True)
class Killer:
    """Kills and restarts programs; everything left to chance follows from the seed."""

    seed: int
    steps: Sequence[str]
    seconds: Callable[[], float]
    """Seconds since the run began, for the report."""
    kills: list[TimedKill] = field(default_factory=list)
    _aims: list[str] = field(default_factory=list)

    def aim(self) -> str:
        """Return the step to hit next: every one once in seeded order, then anew."""
        if not self._aims:
            self._aims = list(self.steps)
            random.Random(f"{self.seed}/aims/{len(self.kills)}").shuffle(self._aims)  # noqa: S311
        return self._aims.pop(0)

    def kill_and_restart(
        self,
        program: Program,
        *,
        before: Callable[[Program], None] = lambda _: None,
        after: Callable[[Program], None] = lambda _: None,
    ) -> TimedKill:
        """Kill a program in the step aimed at, or in whatever it does if that step does not come.

        Waits first until the program has gone through a whole cycle since it was started, so that
        something is delivered between two kills; raises PartFailedError if it never does.
        """
        works = wait_for_step(
            StepFollower(program.spec.log, program.log_began),
            accept=lambda step: step == self.steps[-1],
            go_on=lambda: program.process.is_running,
            deadline_s=_CYCLE_DEADLINE_S,
        )
        if not works:
            message = f"{program.name} does not work, so it cannot be killed at work"
            raise PartFailedError(message, log=str(program.spec.log))
        aimed = self.aim()
        wait_for_step(
            StepFollower.at_end(program.spec.log),
            accept=lambda step: step == aimed,
            go_on=lambda: program.process.is_running,
            deadline_s=_AIM_DEADLINE_S,
        )
        at_us = time.time_ns() // 1_000
        before(program)
        step = program.kill()
        done = TimedKill(Kill(worker=program.name, step=step, at=round(self.seconds(), 1)), at_us)
        self.kills.append(done)
        program.start()
        after(program)
        return done
