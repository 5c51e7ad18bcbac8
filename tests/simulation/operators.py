"""What operators want of a running fleet: it pauses, goes on, and loses single workers.

Processes of their own put back what was parked, and go on behind what has expired.  Production
drivers and cores run in these, as `commands` puts them together.  Nothing keeps workers from
running beside them: what an operator has forgotten to stop, and what wakes up again, is what the
fence is for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

from tests.simulation.history import AcceptedGap, Control
from tests.simulation.node import Node, WatchedCore
from tests.simulation.poison import CorrectingTranslator
from tidegate.lineage.errors import is_expired
from tidegate.lineage.fleet_status import FleetStatus, fleet_status
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.cli.command_sender import send_commands
from tidegate.producer.cli.sole_runs import GapAcceptor, Redriver, find_gap, put_back_parked
from tidegate.producer.core.sole_workers import GapAcceptingWorker, RedrivingWorker
from tidegate.producer.core.worker import Worker
from tidegate.producer.errors import EndedInGap, GapNotAccepted, RedriveFailed
from tidegate.producer.memory.broker import TOMBSTONE
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import DeadLetter, ParkedChange
from tidegate.producer.spanner.decoding.fields import values_of_text
from tidegate.producer.translation.parked_changes import ParkedTranslator
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.progress import (
    ControlState,
    PartitionGap,
    ProgressBody,
    ProgressRecord,
    StreamControl,
    StreamStarted,
    TokenSnapshot,
    WorkerDrain,
)

_AUTHOR = "_control"
ACCEPT_GAP = "accept-gap"
REDRIVE = "redrive"


class Operators:
    """Everybody who runs `pause`, `resume` and `drain`; nobody does before the stream is open."""

    def __init__(self, world, seed: int) -> None:
        self._world = world
        self._random = Random(f"operators {seed}")
        self._number = 0
        self.is_to_pause = False  # whether the last thing that was said is to pause

    def pause_or_resume(self) -> None:
        self.control(ControlState.RUNNING if self.is_to_pause else ControlState.PAUSED)

    def drain_one(self) -> None:
        names = [node.name for node in self._world.nodes]
        self.drain(self._random.choice(names))

    def deeds(self) -> list[tuple[Callable[[], None], float]]:
        weather = self._world.weather
        return [(self.pause_or_resume, weather.controls), (self.drain_one, weather.drains)]

    def control(self, state: ControlState) -> bool:
        world, number = self._world, self._number + 1
        if not self._say(StreamControl(number, state, "operator", world.now_us)):
            return False
        self._number, self.is_to_pause = number, state is ControlState.PAUSED
        world.history.controls.append(Control(world.at, number, state is ControlState.PAUSED))
        what = "paused" if state is ControlState.PAUSED else "resumed"
        world.tell("operator", "fault", f"the stream is {what}")
        return True

    def drain(self, name: str) -> bool:
        is_said = self._say(WorkerDrain(name, "operator", self._world.now_us))
        if is_said:
            self._world.tell("operator", "fault", "a worker is drained")
        return is_said

    def status(self) -> FleetStatus | None:
        world = self._world
        started = world.ground.started()
        if started is None or not isinstance(started.body, StreamStarted):
            return None
        view = _view(world, started.epoch)
        return fleet_status(view, started.body, epoch=started.epoch)

    def _say(self, body: ProgressBody) -> bool:
        world = self._world
        started = world.ground.started()
        if started is None or (world.ground.final is not None and not world.is_healing):
            return False
        publisher = MemoryPublisher(
            world.broker, transactional_id=_AUTHOR, progress_topic=world.names.progress
        )
        send_commands(publisher, lambda: [ProgressRecord(started.epoch, _AUTHOR, body)])
        return True


_PATIENCE_S = 60.0


def _view(world, epoch: str) -> FleetView:
    topic = world.names.progress
    view = FleetView(epoch=epoch, progress_topic=topic, slots=world.slots)
    logs = [world.broker.logs[topic, slot] for slot in range(world.slots)]
    rows = [
        ProgressRow(slot, entry.offset, entry.value)
        for slot, log in enumerate(logs)
        for entry in log.read()
        if entry.value is not TOMBSTONE
    ]
    view.fold(rows, reached={slot: log.stable_end for slot, log in enumerate(logs)})
    return view


def expired_tokens(world) -> list[TokenSnapshot]:
    """Return what heartbeats call stopped by an expired position."""
    started = world.ground.started()
    if started is None:
        return []
    view = _view(world, started.epoch)
    tokens = [
        token
        for slot in view.slots
        for token in (slot.tokens or {}).values()
        if is_expired(token.stopped)
    ]
    return sorted(tokens, key=lambda token: (token.watermark_us, token.token))


class _WatchedAcceptor(WatchedCore, GapAcceptingWorker):
    """The production core, checked after each event."""


class AcceptGap(Node):
    """One process of it; `error` says how it ended, `gaps` what it has asked for."""

    def __init__(
        self, world, *, client_id: str, margin_us: int, gaps: tuple[PartitionGap, ...] = ()
    ) -> None:
        """Accept what is found now, or once more what a former process has found."""
        self._margin_us, self.gaps = margin_us, gaps
        self.error: TidegateError | None = None
        super().__init__(world, ACCEPT_GAP, epoch=client_id, client_id=client_id)

    def new_core(self) -> Worker:
        return self.world.new_worker(self.name, self.epoch, self.identity, kind=_WatchedAcceptor)

    def _run(self) -> None:
        world = self.world
        try:
            self._accept()
        except (GapNotAccepted, EndedInGap) as error:
            self.error = error
            world.exited(self, type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a bug is a finding, not the end of the run
            world.broke(self, f"{type(error).__name__}: {error}")
        else:
            world.exited(self, "gaps accepted")

    def _accept(self) -> None:
        core = self.worker
        assert isinstance(core, GapAcceptingWorker)
        self.gaps = self.gaps or tuple(self._find())
        acceptor = GapAcceptor(self.loop, core, patience_s=_PATIENCE_S, clock=self.process.clock)
        try:
            acceptor.join()
            acceptor.accept(self.gaps)
        finally:
            acceptor.close()

    def _find(self) -> list[PartitionGap]:
        world = self.world
        started: Any = world.ground.started()
        gaps = [
            _result_of(
                find_gap(
                    self._stream, token, margin_us=self._margin_us, end_ns=started.body.end_ns,
                    accepted_by="sim", now_us=world.now_us,
                )
            )
            for token in expired_tokens(world)
        ]  # fmt: skip
        first_us = world.spanner.earliest_us + self._margin_us + 1
        world.history.accepted += [AcceptedGap(gap, first_us) for gap in gaps]
        return gaps


def _result_of(task: Coroutine[Any, Any, PartitionGap]) -> PartitionGap:
    """Run a task whose awaits all give way by themselves."""
    try:
        task.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the task awaits something else")


class _WatchedRedriver(WatchedCore, RedrivingWorker):
    """The production core, checked after each event."""


class Redrive(Node):
    """One process of the redrive; `error` and `left` say how it ended."""

    def __init__(self, world, *, client_id: str, patience_s: float) -> None:
        self._patience_s = patience_s
        self.error: TidegateError | None = None
        """None while it runs, and once it has put back what can be put back."""
        self.left: list[str] = []  # why keys stay parked
        super().__init__(world, REDRIVE, epoch=client_id, client_id=client_id)

    def new_core(self) -> Worker:
        return self.world.new_worker(self.name, self.epoch, self.identity, kind=_WatchedRedriver)

    def _run(self) -> None:
        world = self.world
        try:
            self._put_back()
        except RedriveFailed as error:
            self.error = error
            world.exited(self, type(error).__name__)
        except TidegateError as error:
            self.error = error
            world.ground.note_stop(self.name, error)
            self._ended_with(error)
        except Exception as error:  # noqa: BLE001 - a bug is a finding, not the end of the run
            world.broke(self, f"{type(error).__name__}: {error}")
        else:
            stays = "some keys stay parked" if self.left else "no key stays parked"
            world.exited(self, f"redriven: {stays}")

    def _put_back(self) -> None:
        core = self.worker
        assert isinstance(core, RedrivingWorker)
        translator = CorrectingTranslator(
            self.world.new_translator(self, parks=False), self.world.poison
        )
        parked = ParkedTranslator(translator, self.limits, values_of_text)
        redriver = Redriver(self.loop, core, patience_s=self._patience_s, clock=self.process.clock)
        try:
            redriver.join()
            selection = put_back_parked(self._letters, parked.message, redriver)
        finally:
            redriver.close()
        self.left = [f"{key.reason}: {key.error}" for key in selection.left]

    def _letters(self) -> Iterator[DeadLetter | None]:
        """Read the dead-letter topic as `kafka.dead_letters` does, some records at a time."""
        log = self.world.broker.logs[self.world.names.dead_letter, 0]
        position, end = 0, log.uncommitted_end
        while position < end:
            self.process.pause()
            stable = min(end, log.stable_end)
            if position >= stable:
                yield None
                continue
            for entry in log.read(position, stable):
                assert isinstance(entry.value, ParkedChange)
                yield DeadLetter(0, entry.offset, entry.value)
                if self.world.chance(0.1):
                    self.process.pause()
            position = stable
