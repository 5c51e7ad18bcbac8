"""One worker process: the production loop, core, readers and byte budget over the models.

Its threads go on one at a time, from one pause to the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.clients import KnownLimits, WorkerMembership, WorkerPublisher, WorkerStream
from tests.simulation.history import QueryStart
from tests.simulation.process import Process
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.events import Now
from tidegate.producer.core.fleet import STALE_AFTER_US
from tidegate.producer.core.lifecycle import PartitionState, SlotPhase
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.byte_budget import BudgetLine, ByteBudget, Request
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.errors import MessageTooLarge, ProducerFencedError
from tidegate.producer.memory.group import ClientState
from tidegate.producer.memory.membership import MemoryStreamStartFinder
from tidegate.producer.ports import Response, RunningQuery
from tidegate.schemas.errors import TidegateError, UnreachableError
from tidegate.schemas.progress import ControlState, StreamControl, WorkerDrain
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

DESCRIBE_EVERY_US = 500_000
"""More often than in production, so that rebalances start in the middle of other things."""
_WAITING = (PartitionState.QUEUED, PartitionState.PAUSED)
UNFINISHED = (
    PartitionState.FINISHED,
    PartitionState.SCHEDULED,
    PartitionState.RUNNING,
    PartitionState.HELD,
    *_WAITING,
)  # those with something to read or to publish
MOVABLE = (PartitionState.SCHEDULED, PartitionState.RUNNING, *_WAITING)


class Orders:
    """What operators want of one process, by what it has read of the root's slot."""

    def __init__(self) -> None:
        self._has_reached_end = False
        self._position = 0
        """What lies before it in the root's slot is known, and says nothing a second time."""
        self._paused: dict[str, bool] = {}  # by epoch
        self.is_to_leave = False

    def take(self, event: on.Event, *, worker: str) -> None:
        if isinstance(event, on.DrainRequested):
            self.is_to_leave |= event.leaves_group
        if not isinstance(event, on.RootSlotRead) or event.begin < self._position:
            return
        self._position = event.end
        for record in event.records:
            match record.body:
                case StreamControl():
                    self._paused[record.epoch] = record.body.state is ControlState.PAUSED
                case WorkerDrain():
                    is_meant = self._has_reached_end and record.body.worker == worker
                    self.is_to_leave |= is_meant
        self._has_reached_end |= event.is_at_end

    def may_read(self, epoch: str | None) -> bool:
        return self._has_reached_end and not self._paused.get(epoch or "", False)


class WatchedCore(Worker):
    """A production core; tells the world what it sees and asks for, and is checked after it."""

    def __init__(self, world, **options: Any) -> None:
        super().__init__(**options)
        self._world = world
        self._waiting_since: dict[tuple[str, PartitionState], int] = {}
        self._ahead_since: dict[str, int] = {}
        self._orders = Orders()

    def handle(self, event: on.Event, *, now: Now) -> list[do.Effect]:
        world = self._world
        world.tell(self.name, "event", event)
        unread = self._what_is_pending() if isinstance(event, on.RootSlotRead) else {}
        effects = super().handle(event, now=now)
        self.check_invariants()
        self._orders.take(event, worker=self.name)
        self._note_disobedience(effects, unread)
        self._note_waits()
        self._note_drift(now)
        for effect in effects:
            world.tell(self.name, "effect", effect)
            if isinstance(effect, do.ReportStopped):
                partition = self.slots[slot_of(effect.token, world.slots)].tokens[effect.token]
                world.stopped(self.name, effect, parked_keys=partition.parked.keys)
        return effects

    def _what_is_pending(self) -> dict[str, int]:
        """Return how much each stream partition has read that it could publish now.

        What waits for a later table is dropped with its slot: the next owner reads it again.
        """
        return {
            token: len(partition.pending)
            for slot in self.slots.values()
            for token, partition in slot.tokens.items()
            if not self._tables.waited_for(partition.pending)
        }

    def _note_disobedience(self, effects: list[do.Effect], unread: dict[str, int]) -> None:
        world, orders = self._world, self._orders
        found = world.history.disobeyed
        if not orders.may_read(self.epoch):
            starts = [e.token for e in effects if isinstance(e, do.StartQuery) and e.token]
            found += [f"{self.name} reads {token} in a pause" for token in starts]
            if self.states.get(PartitionState.RUNNING, 0):
                found.append(f"{self.name} has queries in a pause")
        now = self._what_is_pending()
        found += [
            f"{self.name} dropped changes of {token} that it had read"
            for token, pending in unread.items()
            if now.get(token, 0) < pending
        ]
        leaves = any(isinstance(e, do.Stop) and e.leaves_group for e in effects)
        if leaves and not orders.is_to_leave:
            found.append(f"{self.name} left, which no operator wanted of it")

    def _release(self, slots: list[Slot]) -> list[do.Effect]:
        self._world.history.disobeyed += [
            f"{self.name} released slot {slot.number} before what it had read was committed"
            for slot in slots
            if slot.phase is SlotPhase.REVOKING and self._cycle.has_news(slot.number)
        ]
        return super()._release(slots)

    def _note_waits(self) -> None:
        world, weather = self._world, self._world.weather
        running = self.states.get(PartitionState.RUNNING, 0)
        world.measure("queries of one worker", running, weather.open_queries)
        if not world.is_healing or not any(self.states.get(state) for state in _WAITING):
            self._waiting_since.clear()
            return
        tokens = {t: p for slot in self.slots.values() for t, p in slot.tokens.items()}
        slowest_us = world.slowest_us(self)
        near_us = 0 if slowest_us is None else slowest_us + weather.drift_us // 2
        since, self._waiting_since = self._waiting_since, {}
        for token, partition in tokens.items():
            is_paused = partition.state is PartitionState.PAUSED
            is_near = partition.read.watermark_us <= near_us
            if partition.state is PartitionState.QUEUED or (is_paused and is_near):
                held = world.history.paused if is_paused else world.history.queued
                since_us = since.get((token, partition.state), world.now_us)
                self._waiting_since[token, partition.state] = since_us
                held[token] = max(held.get(token, 0), world.now_us - since_us)

    def _note_drift(self, now: Now) -> None:
        """Tell the world how long stream partitions are read too far ahead of the fleet's.

        Counted until the worker last knew the whole fleet: later it had no reason to stop them.
        Where a topic is lost nothing can be published, so nothing that was read can be given back.
        """
        world, drift_us = self._world, self._world.weather.drift_us
        known_at_us = self._fleet._current_at_us
        since, self._ahead_since = self._ahead_since, {}
        if not world.is_healing or not drift_us or known_at_us is None or world.history.ground:
            return
        slowest_us = world.slowest_us(self)
        if slowest_us is None:
            return
        for slot in self.slots.values():
            for token, partition in slot.tokens.items():
                is_read = partition.state is PartitionState.RUNNING
                if is_read and partition.read.watermark_us > slowest_us + drift_us:
                    since_us = self._ahead_since[token] = since.get(token, now.monotonic_us)
                    longest_us = world.history.ahead.get(token, 0)
                    world.history.ahead[token] = max(longest_us, known_at_us - since_us)


class WatchedWorker(WatchedCore):
    """The core of a worker of the fleet."""


class WatchedBudget(ByteBudget):
    """The production budget; remembers what it may hold, and what is on its way to a reader."""

    bound = 0
    """What fits; or what waiting readers held, and what one of them was given on top of it."""
    granted = 0  # bytes of readers that were admitted and have not gone on yet

    unfair = 0
    """The most that was held beyond its share by a stream partition that passed another by."""

    def __init__(self, bytes_max: int, **options: Any) -> None:
        super().__init__(bytes_max, **options)
        self._line = _WatchedLine(self, bytes_max)

    async def take(self, token: str, size: int, **options: Any) -> bool:
        is_taken = await super().take(token, size, **options)
        self.granted -= size if is_taken else 0
        return is_taken


class _WatchedLine(BudgetLine):
    def __init__(self, budget: WatchedBudget, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._budget = budget

    def admit(self) -> Request | None:
        waiting, carried = self.waiting, self.carried
        beyond = {one.token: max(0, self.delivered(one.token) - self.share) for one in waiting}
        request = super().admit()
        if request is not None:
            budget = self._budget
            budget.granted += request.size
            budget.bound = max(budget.bound, self.bytes_max, carried + request.size)
            if not all(beyond.values()):
                budget.unfair = max(budget.unfair, beyond[request.token])
        return request


class _WatchedQuery:
    """A query; measures what is received and was not taken from the budget before."""

    def __init__(self, world, reader: WatchedReader, query: RunningQuery) -> None:
        self._world, self._reader, self._query = world, reader, query
        self.next_size, self.cancel = query.next_size, query.cancel

    async def receive(self) -> Response:
        response = await self._query.receive()
        untaken = max(0, response.size_bytes - self._reader._held)
        self._world.measure("bytes received and not taken", untaken, 0)
        return response


class WatchedReader(PartitionReader):
    """The production reader; says when it has ended, and holds nothing any more."""

    has_ended = False

    def __init__(self, world, stream: WorkerStream, *args: Any, **options: Any) -> None:
        super().__init__(stream, *args, **options)
        self._query = _WatchedQuery(world, self, self._query)

    async def _run(self) -> None:
        await super()._run()
        self.has_ended = True


class Node:
    """One worker process: the production loop over models of its ports."""

    def __init__(self, world, name: str, *, epoch: str, client_id: str) -> None:
        self.world, self.name = world, name
        self.epoch = epoch  # what it calls the epoch if it opens the stream
        self.is_paused = False
        self.woke_in_healing = False
        """Stopped until the faults ended, perhaps for longer than it waits for anything."""
        self.client_id = client_id
        self.process = Process(world, name)
        self._readers: list[WatchedReader] = []
        self.budget = WatchedBudget(world.weather.budget_bytes, tasks=self.process)
        self.publisher = WorkerPublisher(
            world.broker, name=name, progress_topic=world.names.progress,
            dead_letter=world.names.dead_letter, process=self.process,
            random=world.random, on_commit=world.commit_note(name), faults=world.publisher_faults,
            on_refused=lambda failure: world.message_refused(self, failure),
            tombstones=world.weather.tombstones,
        )  # fmt: skip
        self.identity = world.find_identity()
        self.limits = KnownLimits(
            world.broker,
            [*world.data_topics, world.names.progress, world.names.dead_letter],
            process=self.process,
        )
        self.loop = FleetWorker(
            self.new_core(),
            publisher=self.publisher,
            open_reader=self._open_reader,
            open_stream_start=lambda: MemoryStreamStartFinder(
                world.broker, topic=world.names.progress, root_slot=slot_of(ROOT_TOKEN, world.slots)
            ),
            release_budget=self.budget.release,
            clock=self.process.clock,
            threads=self.process,
            revoke_patience_s=world.weather.revoke_patience_s,
        )
        self.membership = WorkerMembership(
            world, self.process, worker=name, client_id=client_id, topic=world.names.progress,
            data_topics=[topic.topic for topic in self.identity.topics], listener=self.loop,
            describe_every_us=DESCRIBE_EVERY_US,
        )  # fmt: skip
        self.loop.attach(self.membership)
        self._stream = WorkerStream(world, self.process)
        parks = world.weather.parks and self.worker._limits.heartbeats.version > 1
        translator = world.new_translator(self, parks=parks)
        self._translator = replace(translator, record_filter=world.weather.record_filter)
        self._main = self.process.start(self._run, name="loop")

    @property
    def worker(self) -> Worker:
        return self.loop._runner.worker

    @property
    def client(self) -> Any:
        return self.membership.client

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive

    @property
    def knows_fleet(self) -> bool:
        known_at_us = self.worker._fleet._current_at_us
        if not self.is_alive or known_at_us is None:
            return False
        return self.process.clock.monotonic_us() <= known_at_us + STALE_AFTER_US

    @property
    def bytes_in_transit(self) -> int:
        """Bytes that the core does not know yet, or has released already."""
        inbox = self.loop._inbox
        waiting = [o for o in (*inbox._joined, *inbox._waiting) if isinstance(o, on.RecordsRead)]
        released = [e for e in self.loop._runner._effects if isinstance(e, do.ReleaseBudget)]
        return sum(one.size_bytes for one in (*waiting, *released))

    @property
    def leak(self) -> int:
        """Bytes that are taken, less those that somebody holds."""
        worker = self.worker
        partitions = [p for slot in worker.slots.values() for p in slot.tokens.values()]
        pending = sum(p.pending_bytes for p in (*partitions, worker._opening.root) if p is not None)
        readers = sum(reader._held for reader in self._readers if not reader.has_ended)
        return (
            self.budget._line.taken
            - self.budget.granted
            - readers
            - pending
            - self.bytes_in_transit
        )

    def step(self) -> None:
        threads = self.process.threads
        thread = self._main
        if len(threads) > 1 and self.world.chance(0.5):
            thread = self.world.random.choice(threads)
        if thread.is_alive():
            thread.go_on()
        world = self.world
        world.measure("bytes held by readers", self.budget._line.taken, self.budget.bound)
        world.measure("bytes beyond a share that passed others by", self.budget.unfair, 0)
        if not self.loop._runner.is_stopped:
            world.measure("bytes taken that nobody holds, or held and not taken", abs(self.leak), 0)
        if not self._main.is_alive():
            self.process.kill()

    def drain(self) -> None:
        self.loop.request_drain()

    def kill(self) -> None:
        self.process.kill()

    def new_core(self) -> Worker:
        return self.world.new_worker(self.name, self.epoch, self.identity, kind=WatchedWorker)

    def move(self) -> None:
        """Let the core go on in another object: whatever a snapshot leaves out is lost."""
        worker = self.new_core()
        worker.restore(self.worker.snapshot())
        if isinstance(worker, WatchedCore) and isinstance(self.worker, WatchedCore):
            worker._orders = self.worker._orders
        self.loop._runner.worker = worker

    def _run(self) -> None:
        world = self.world
        try:
            self.loop.run()
        except TidegateError as error:
            world.ground.note_stop(self.name, error)
            self._ended_with(error)
        except Exception as error:  # noqa: BLE001 - a bug is a finding, not the end of the run
            world.broke(self, f"{type(error).__name__}: {error}")
        else:
            has_left = self.loop._runner.leaves_group
            if has_left and not self.client.has_left:
                world.history.disobeyed.append(f"{self.name} is drained and stays in the group")
            world.exited(self, "drained, and left" if has_left else "drained")

    def _ended_with(self, error: TidegateError) -> None:
        """Tell whether the run explains the error that ended the worker."""
        world = self.world
        if world.ground.explains(error):
            world.exited(self, type(error).__name__)
        elif isinstance(error, MessageTooLarge):
            world.stopped_for_size(self.name, error)
            world.exited(self, "a message is too large")
        elif isinstance(error, ProducerFencedError):
            if world.broker.claims[self.name] == self.client_id:
                world.broke(self, f"no other process claimed its name: {error}")
            else:
                world.exited(self, "fenced")
        elif isinstance(error, UnreachableError):
            if world.is_healing and not self.woke_in_healing:
                world.broke(self, f"stopped: {error}")
            else:
                world.exited(self, "the broker was silent for too long")
        elif self.client.state is ClientState.LOCKED_OUT or self.membership.has_successor():
            world.exited(self, "its name belongs to another process")
        else:
            world.broke(self, f"stopped: {error}")

    def _holding(self, token: str) -> str:
        slot = self.worker.slots.get(slot_of(token, self.world.slots))
        return f"{self.client_id} {slot.incarnation}" if token and slot else ""

    def _open_reader(self, query: do.StartQuery, deliver: Any) -> PartitionReader:
        world = self.world
        world.at += 1
        start_us = query.start_ns // 1000
        world.history.queries.append(
            QueryStart(
                world.at, self.name, query.token, start_us,
                at_us=world.now_us, holding=self._holding(query.token),
            )
        )  # fmt: skip
        self._readers = [reader for reader in self._readers if not reader.has_ended]
        self._readers.append(
            WatchedReader(
                world, self._stream, self._translator, token=query.token, query_id=query.query_id,
                start_ns=query.start_ns, end_ns=query.end_ns, heartbeat_ms=1_000, deliver=deliver,
                budget=self.budget, tasks=self.process,
            )
        )  # fmt: skip
        return self._readers[-1]
