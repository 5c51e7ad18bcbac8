"""SIGKILL in a step that the seed chooses; the victim's log shows which step it is in.

The step that a kill hit is read from the log afterwards.  Choosing it beforehand makes sure that
many kills hit every step.  The victim restarts at once under the same name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.programs import Program, StepFollower, wait_for_step

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


@dataclass(slots=True)
class Killer:
    """Kills and restarts programs; the seed decides in which steps."""

    seed: int
    steps: Sequence[str]
    seconds: Callable[[], float]
    """Seconds since the run began, for the report."""
    kills: list[Kill] = field(default_factory=list)
    _aims: list[str] = field(default_factory=list)

    def aim(self) -> str:
        """Return the step to hit next: every step once in seeded order, then all of them again."""
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
    ) -> Kill:
        """Kill a program in the chosen step, or in any step if that one does not come in time.

        Waits first until the program has finished a cycle since its start, so that it delivers
        something between two kills; raises PartFailedError if it does not.  Calls `before` just
        before the kill and `after` when the program runs again.
        """
        works = wait_for_step(
            StepFollower(program.spec.log, program.log_began),
            accept=lambda step: step == self.steps[-1],
            go_on=lambda: program.process.is_running,
            deadline_s=_CYCLE_DEADLINE_S,
        )
        if not works:
            raise PartFailedError(
                f"{program.name} finished no cycle since its start", log=str(program.spec.log)
            )
        aimed = self.aim()
        wait_for_step(
            StepFollower.at_end(program.spec.log),
            accept=lambda step: step == aimed,
            go_on=lambda: program.process.is_running,
            deadline_s=_AIM_DEADLINE_S,
        )
        before(program)
        step = program.kill()
        done = Kill(worker=program.name, step=step, at=round(self.seconds(), 1))
        self.kills.append(done)
        program.start()
        after(program)
        return done
