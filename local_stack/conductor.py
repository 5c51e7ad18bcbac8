"""Carries out a schedule of splits, merges and kills while the customers work.

Three threads, so that a kill that waits for its victim's step holds up no split: churn, workers,
consumer. The first failure of any of them ends the run.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.local_stack.errors import LocalStackError
from tidegate.local_stack.kills import CONSUMER_STEPS, WORKER_STEPS, Killer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.local_stack.churn import Disturbance, SimulatorControl
    from tidegate.local_stack.customers import Customers
    from tidegate.local_stack.pipeline import Pipeline
    from tidegate.local_stack.programs import Program
    from tidegate.local_stack.view import RunView

__all__ = ["Conductor"]

_POLL_S = 0.05
_REFUSALS_MAX = 20
_REFUSED_AGAIN_S = 0.5


@dataclass(slots=True)
class Conductor:
    """Makes one run eventful; `conduct` returns when everything planned is done."""

    seed: int
    plan: Sequence[Disturbance]
    customers: Customers
    control: SimulatorControl
    pipeline: Pipeline
    view: RunView
    splits: int = 0
    merges: int = 0
    worker_killer: Killer = field(init=False)
    consumer_killer: Killer = field(init=False)
    _abandoned: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Give each kind of victim its own killer."""
        self.worker_killer = Killer(self.seed, WORKER_STEPS, lambda: self.view.seconds)
        self.consumer_killer = Killer(self.seed, CONSUMER_STEPS, lambda: self.view.seconds)

    def conduct(self, tick: Callable[[], None]) -> None:
        """Carry out the plan; raises what any part of it raises."""
        with ThreadPoolExecutor(3, thread_name_prefix="conductor") as pool:
            running: list[Future[None]] = [
                pool.submit(self._follow, kinds)
                for kinds in ({"split", "merge"}, {"kill-worker"}, {"kill-consumer"})
            ]
            try:
                while not all(future.done() for future in running):
                    for future in running:
                        if future.done():
                            future.result()
                    self.pipeline.check()
                    tick()
                    time.sleep(_POLL_S)
                for future in running:
                    future.result()
            except BaseException:
                self._abandoned.set()
                raise

    def _follow(self, kinds: set[str]) -> None:
        chance = random.Random(f"{self.seed}/victims/{sorted(kinds)}")  # noqa: S311 - no secret
        for planned in (one for one in self.plan if one.kind in kinds):
            while self.customers.done < planned.at_share * self.customers.transfers:
                if self._abandoned.wait(_POLL_S):
                    return
            match planned.kind:
                case "split":
                    self._churn(self.control.split)
                    self.splits += 1
                case "merge":
                    self._churn(self.control.merge)
                    self.merges += 1
                case "kill-worker":
                    self._kill(chance.choice(self.pipeline.workers), self.worker_killer)
                case "kill-consumer":
                    if self.pipeline.consumer:
                        self._kill(self.pipeline.consumer, self.consumer_killer)

    def _churn(self, act: Callable[[], object]) -> None:
        """Split or merge; a refusal (nothing there that can be divided yet) is tried again."""
        for refusals in range(_REFUSALS_MAX):
            try:
                act()
            except LocalStackError:
                if refusals == _REFUSALS_MAX - 1 or self._abandoned.wait(_REFUSED_AGAIN_S):
                    raise
            else:
                return

    def _kill(self, victim: Program, killer: Killer) -> None:
        killed = killer.kill_and_restart(
            victim, before=self.pipeline.going_down, after=self.pipeline.is_up_again
        )
        self.view.event(f"killed {killed.kill.worker} in step {killed.kill.step}, started it again")
