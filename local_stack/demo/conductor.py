"""Splits, merges and kills of a run: their plan, and its execution while transfers are made.

`schedule` is pure: the same seed gives the same plan.  `SimulatorControl` splits and merges by the
simulator's control port.

A kill is a SIGKILL in a step that the seed chooses; the victim's log shows which step it is in.
The step that a kill hit is read from the log afterwards.  Choosing it beforehand makes sure that
many kills hit every step.  The victim restarts at once under the same name.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.errors import LocalStackError, PartFailedError
from tidegate.local_stack.parts.process import Cancelled
from tidegate.local_stack.parts.programs import Program, StepFollower, wait_for_step

if TYPE_CHECKING:
    from tidegate.local_stack.demo.customers import Customers
    from tidegate.local_stack.demo.pipeline import Pipeline

DisturbanceKind = Literal["split", "merge", "kill-worker", "kill-consumer"]

_FIRST, _LAST = 0.06, 0.9
_TIMEOUT_S = 15


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing to do when a share of the transfers is done."""

    at_share: float
    kind: DisturbanceKind


def schedule(
    seed: int,
    *,
    splits: int,
    merges: int,
    kill_workers: int,
    kill_consumer: int,
    kills_from: float,
) -> list[Disturbance]:
    """Return everything to do, by the share of transfers done.

    Splits and merges are mixed, then placed at even distances with some jitter over the whole run.
    Kills come after `kills_from`, a share too; those of one kind as far apart as that allows.
    """
    chance = random.Random(f"{seed}/schedule")  # noqa: S311 - a plan, no secret
    planned = _placed(_churn_order(splits, merges, chance), chance, first=_FIRST, jitter_max=0.9)
    kills: list[list[DisturbanceKind]] = [
        ["kill-worker"] * kill_workers,
        ["kill-consumer"] * kill_consumer,
    ]
    for kinds in kills:
        planned += _placed(kinds, chance, first=kills_from, jitter_max=0.2)
    return sorted(planned, key=lambda disturbance: disturbance.at_share)


def _churn_order(splits: int, merges: int, chance: random.Random) -> list[DisturbanceKind]:
    """Return splits and merges in a random order.

    Merges never outnumber the splits before them, unless there are no splits left: with at least
    the initial number of stream partitions, most transfers span several of them.
    """
    order: list[DisturbanceKind] = []
    ahead = 0
    while splits or merges:
        may_merge = merges and (ahead > 0 or not splits)
        if may_merge and (not splits or chance.random() < merges / (splits + merges)):
            order.append("merge")
            merges, ahead = merges - 1, ahead - 1
        else:
            order.append("split")
            splits, ahead = splits - 1, ahead + 1
    return order


def _placed(
    kinds: list[DisturbanceKind],
    chance: random.Random,
    *,
    first: float,
    jitter_max: float,
) -> list[Disturbance]:
    step = (_LAST - first) / max(1, len(kinds))
    return [
        Disturbance(round(first + step * (number + chance.uniform(0.1, jitter_max)), 4), kind)
        for number, kind in enumerate(kinds)
    ]


@dataclass(frozen=True, slots=True)
class SimulatorControl:
    """The simulator's control port, for one change stream.

    Raises LocalStackError when the port does not answer or refuses.
    """

    address: str
    database: str
    stream: str

    def split(self) -> dict[str, Any]:
        """Split the busiest stream partition; return the simulator's answer."""
        return self._ask("/split")

    def merge(self) -> dict[str, Any]:
        """Merge two adjacent stream partitions; returns as `split` does."""
        return self._ask("/merge")

    def move(self) -> dict[str, Any]:
        """Move the busiest stream partition: one parent, one child; returns as `split` does."""
        return self._ask("/move")

    def slow_reads(self, delay_ms: int) -> None:
        """Delay each message of a table read, until `clear_faults`."""
        rule = {"method": "StreamingRead", "kind": "slow", "delay_ms": delay_ms, "count": None}
        self._send("POST", "/add-fault", json.dumps({"database": self.database, **rule}))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._send("POST", "/clear-faults", "{}")

    def stream_partitions(self) -> list[Any]:
        """Return the live stream partitions as the simulator describes them."""
        query = urlencode({"database": self.database, "stream": self.stream})
        answer = self._send("GET", f"/stream-partitions?{query}")
        partitions = answer.get("stream_partitions", []) if isinstance(answer, dict) else answer
        return list(partitions)

    def _ask(self, path: str) -> dict[str, Any]:
        body = json.dumps({"database": self.database, "stream": self.stream})
        return dict(self._send("POST", path, body))

    def _send(self, method: str, path: str, body: str | None = None) -> Any:
        connection = HTTPConnection(self.address, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read().decode(errors="replace")
        except OSError as error:
            raise LocalStackError(
                "the simulator's control port does not answer", address=self.address
            ) from error
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise LocalStackError("the simulator refused", path=path, answer=content.strip())
        return json.loads(content or "null")


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
    abandoned: threading.Event = field(default_factory=threading.Event)
    """Set when the run ends early: nothing is killed any more."""
    kills: list[Kill] = field(default_factory=list)
    _aims: list[str] = field(default_factory=list)

    def aim(self) -> str:
        """Return the step to hit next: every step once in seeded order, then all of them again."""
        if not self._aims:
            self._aims = list(self.steps)
            random.Random(f"{self.seed}/aims/{len(self.kills)}").shuffle(self._aims)  # noqa: S311 - as above
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
        something between two kills; raises PartFailedError if it does not, and Cancelled if the run
        is abandoned meanwhile.  Calls `before` just before the kill and `after` when the program
        runs again.
        """

        def goes_on() -> bool:
            return program.process.is_running and not self.abandoned.is_set()

        works = wait_for_step(
            StepFollower(program.spec.log, program.log_began),
            accept=lambda step: step == self.steps[-1],
            go_on=goes_on,
            deadline_s=_CYCLE_DEADLINE_S,
        )
        self._require_run(program)
        if not works:
            raise PartFailedError(
                f"{program.name} finished no cycle since its start", log=str(program.spec.log)
            )
        aimed = self.aim()
        wait_for_step(
            StepFollower.at_end(program.spec.log),
            accept=lambda step: step == aimed,
            go_on=goes_on,
            deadline_s=_AIM_DEADLINE_S,
        )
        self._require_run(program)
        before(program)
        step = program.kill()
        done = Kill(worker=program.name, step=step, at=round(self.seconds(), 1))
        self.kills.append(done)
        program.start()
        after(program)
        return done

    def _require_run(self, program: Program) -> None:
        if self.abandoned.is_set():
            raise Cancelled(f"{program.name} was not killed: the run has ended")


_POLL_S = 0.05
_REFUSALS_MAX = 20
_REFUSED_AGAIN_S = 0.5
_IDLE_MAX_S = 300.0


@dataclass(slots=True, kw_only=True)
class Killers:
    """Kills workers and the consumer of a pipeline, and starts them again."""

    seed: int
    pipeline: Pipeline
    view: RunView
    worker_killer: Killer = field(init=False)
    consumer_killer: Killer = field(init=False)
    _abandoned: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Make a killer for each kind of victim."""
        self.worker_killer, self.consumer_killer = (
            Killer(self.seed, steps, lambda: self.view.seconds, self._abandoned)
            for steps in (WORKER_STEPS, CONSUMER_STEPS)
        )

    @property
    def count(self) -> int:
        """How many programs were killed."""
        return len(self.worker_killer.kills) + len(self.consumer_killer.kills)

    def kill_worker(self, victim: Program) -> None:
        """Kill a worker in the step that is next, and start it again."""
        self._kill(victim, self.worker_killer)

    def kill_consumer(self) -> None:
        """Kill the consumer, if it was started, in the step that is next, and start it again."""
        if self.pipeline.consumer:
            self._kill(self.pipeline.consumer, self.consumer_killer)

    def _kill(self, victim: Program, killer: Killer) -> None:
        killed = killer.kill_and_restart(
            victim, before=self.pipeline.going_down, after=self.pipeline.is_up_again
        )
        wait = ": no release comes for some seconds" if victim is self.pipeline.consumer else ""
        self.view.event(f"killed {killed.worker} in step {killed.step}; it starts again{wait}")


@dataclass(slots=True, kw_only=True)
class Conductor(Killers):
    """Carries out plans, one after the other, and counts the steps.

    Three threads (splits and merges, workers, consumer), so that a kill that waits for its victim's
    step does not delay a split.  The first failure in any of them ends the run.
    """

    customers: Customers
    control: SimulatorControl
    splits: int = 0
    merges: int = 0
    _done_last: int = -1
    _done_last_s: float = 0.0

    def conduct(self, plan: Sequence[Disturbance], tick: Callable[[], None]) -> None:
        """Carry out a plan; returns when all of it is done, raises the first failure.

        `tick` is called about twenty times a second.  It is also a failure if no transfer is made
        for five minutes before the last step is due.
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
        """Raise PartFailedError if the customers failed, or are idle before the plan's end."""
        done, now_s = self.customers.done, time.monotonic()
        if done != self._done_last:
            self._done_last, self._done_last_s = done, now_s
        last = max((step.at_share for step in plan), default=0.0) * self.customers.transfers
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
