"""Carries out a plan of splits, merges and kills while the customers make transfers.

Three threads (splits and merges, workers, consumer), so that a kill that waits for its victim's
step does not delay a split.  The first failure in any of them ends the run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.local_stack.demo.churn import Disturbance, SimulatorControl
from tidegate.local_stack.demo.kills import CONSUMER_STEPS, WORKER_STEPS, Killer
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.errors import LocalStackError, PartFailedError
from tidegate.local_stack.parts.programs import Program

if TYPE_CHECKING:
    from tidegate.local_stack.demo.customers import Customers
    from tidegate.local_stack.demo.pipeline import Pipeline


_POLL_S = 0.05
_REFUSALS_MAX = 20
_REFUSED_AGAIN_S = 0.5
_IDLE_MAX_S = 300.0


@dataclass(slots=True)
class Conductor:
    """Carries out plans, one after the other, and counts what it did."""

    seed: int
    customers: Customers
    control: SimulatorControl
    pipeline: Pipeline
    view: RunView
    splits: int = 0
    merges: int = 0
    worker_killer: Killer = field(init=False)
    consumer_killer: Killer = field(init=False)
    _abandoned: threading.Event = field(default_factory=threading.Event)
    _done_last: int = -1
    _done_last_s: float = 0.0

    def __post_init__(self) -> None:
        """Make a killer for each kind of victim."""
        self.worker_killer = Killer(self.seed, WORKER_STEPS, lambda: self.view.seconds)
        self.consumer_killer = Killer(self.seed, CONSUMER_STEPS, lambda: self.view.seconds)

    def conduct(self, plan: Sequence[Disturbance], tick: Callable[[], None]) -> None:
        """Carry out a plan; returns when all of it is done, raises the first failure.

        `tick` is called about twenty times a second meanwhile.  A step whose share of the transfers
        is not reached because no transfer is made any more is a failure, too.
        """
        with ThreadPoolExecutor(3, thread_name_prefix="conductor") as pool:
            running: list[Future[None]] = [
                pool.submit(self._follow, [planned for planned in plan if planned.kind in kinds])
                for kinds in ({"split", "merge"}, {"kill-worker"}, {"kill-consumer"})
            ]
            try:
                while not all(future.done() for future in running):
                    for future in running:
                        if future.done():
                            future.result()
                    self.pipeline.check()
                    self._require_transfers(plan)
                    tick()
                    time.sleep(_POLL_S)
                for future in running:
                    future.result()
            except BaseException:
                self._abandoned.set()
                raise

    def _require_transfers(self, plan: Sequence[Disturbance]) -> None:
        """Raise PartFailedError if the customers failed, or stand still before the plan's end."""
        done, now_s = self.customers.done, time.monotonic()
        if done != self._done_last:
            self._done_last, self._done_last_s = done, now_s
        last = max((one.at_share for one in plan), default=0.0) * self.customers.transfers
        if self.customers.has_finished or done >= last or now_s < self._done_last_s + _IDLE_MAX_S:
            return
        raise PartFailedError(
            (
                f"no transfer was made for {_IDLE_MAX_S:.0f} s, and the plan goes on to transfer "
                f"{last:.0f}"
            ),
            transfers=done,
        )

    def _follow(self, plan: Sequence[Disturbance]) -> None:
        chance = random.Random(f"{self.seed}/victims")  # noqa: S311 - no secret
        for planned in plan:
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
                    self.kill_worker(chance.choice(self.pipeline.workers))
                case "kill-consumer":
                    self.kill_consumer()

    def kill_worker(self, victim: Program) -> None:
        """Kill a worker in the step that is next, and start it again."""
        self._kill(victim, self.worker_killer)

    def kill_consumer(self) -> None:
        """Kill the consumer, if it was started, in the step that is next, and start it again."""
        if self.pipeline.consumer:
            self._kill(self.pipeline.consumer, self.consumer_killer)

    def _churn(self, act: Callable[[], object]) -> None:
        """Split or merge; retries a refusal, because the next rows may make it possible."""
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
        self.view.event(f"killed {killed.worker} in step {killed.step}, restarted it")
