"""One worker process: the production core, unchanged, in a loop like that of its driver.

Effects wait in a queue and are carried out one at a time, so that anything may happen between two
of them: the group moves on, the broker gives up on a transaction, the process dies.  In `atomic`
mode an outcome is handled before anything else, as `driver.fleet_worker` does; otherwise whatever
arrives first is.  Two rules hold for every driver: a slot's recovery is told at once, before
anything that is read from the new position, and what was read carries its slot's incarnation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from tests.simulation.group import GroupClient, State
from tests.simulation.lookout import Lookout
from tests.simulation.spanner import QueryBroke, QueryDone, StreamQuery
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.worker import Worker
from tidegate.producer.errors import ProducerFencedError
from tidegate.schemas.errors import InvariantViolation, TidegateError
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_codec import ProgressAssembler
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Node"]


class SourceUnavailable(TidegateError):
    """What a query's retriable failure is to the core."""

    retriable = True


class Node:
    """See the module."""

    def __init__(
        self, world: World, name: str, worker: Worker, *, epoch: str, atomic: bool
    ) -> None:
        self.world = world
        self.name = name
        self.worker = worker
        self.epoch = epoch
        """What it calls the epoch if it opens the stream."""
        self.client = GroupClient(world.broker.group, name)
        self.publisher = world.new_publisher(name, self.client)
        self._lookout = Lookout(name, world.slots)
        self.is_alive = True
        self.is_paused = False
        self._atomic = atomic
        self._effects: deque[do.Effect] = deque()
        self._outcomes: deque[on.Event] = deque()
        self._polled: deque[on.Event] = deque()
        self._inbox: deque[on.ReaderOutput] = deque()
        self._queries: dict[int, tuple[str, StreamQuery, int]] = {}
        self._positions: dict[int, tuple[int, int]] = {}
        """Slot -> (incarnation, next offset)."""
        self._letting_go: frozenset[int] = frozenset()
        self._held: set[int] = set()
        self._seeks_start = False
        self._wants_drain = False
        self.publisher.start()

    # ------------------------------------------------------------ one step

    def step(self) -> None:
        """Do the next thing."""
        if self._effects:
            self._carry_out(self._effects.popleft())
            return
        if self._outcomes and (self._atomic or self.world.chance(0.6)):
            self._handle(self._outcomes.popleft())
            return
        if self._wants_drain:
            self._wants_drain = False
            self._handle(on.DrainRequested())
            return
        turns: list[Callable[[], None]] = [self._tick]
        if self._letting_go and not self._letting_go & self._held:
            turns = [self._poll]
        elif self._letting_go and self.world.chance(self.world.weather.impatience):
            turns = [self._lose_patience]
        elif not (self._atomic and self._letting_go):
            turns += [self._poll, self._poll, self._read_source, self._read_source]
            if self._inbox:
                turns += [self._take_inbox, self._take_inbox]
        self.world.random.choice(turns)()

    def drain(self) -> None:
        """Ask it to end in good order, as SIGTERM does."""
        self._wants_drain = True

    @property
    def bytes_in_transit(self) -> int:
        """Bytes taken that the core does not know yet, or has given back already."""
        waiting = sum(o.size_bytes for o in self._inbox if isinstance(o, on.RecordsRead))
        return waiting + sum(e.size_bytes for e in self._effects if isinstance(e, do.ReleaseBudget))

    # ------------------------------------------------------------ what it looks at

    def _tick(self) -> None:
        self._handle(on.Ticked())

    def _poll(self) -> None:
        """Look at the group, serve rebalances first, then what the own slots bring."""
        client = self.client
        rejoin = self._lookout.look(client, self.world.now_us)
        if rejoin is not None:
            self.world.tell(self.name, "effect", rejoin)
        if client.callbacks and (not self._polled or self.world.chance(0.5)):
            self._serve(*client.callbacks[0])
            return
        if self._polled:
            self._handle(self._polled.popleft())
            while self.world.is_healing and self._polled and not self._effects:
                self._handle(self._polled.popleft())
            return
        if client.state is State.LOCKED_OUT:
            self.world.exited(self, "its name belongs to another process")
            return
        if self._seeks_start:
            self._seek_start()
        for slot in sorted(self._positions):
            self._read_slot(slot)

    def _serve(self, kind: str, slots: frozenset[int]) -> None:
        client = self.client
        if kind == "assigned":
            client.done(kind, slots)
            self._held |= slots
            self._handle(on.SlotsAssigned(tuple(sorted(slots))))
        elif kind == "revoked":
            held = slots & self._held
            if not held:
                client.done(kind, slots)
                self._letting_go = frozenset()
            elif not self._letting_go:
                self._letting_go = held
                self._handle(on.SlotsRevoked(tuple(sorted(held))))
        else:
            client.done(kind, slots)
            self._letting_go = frozenset()
            held = slots & self._held
            self._held -= slots
            for slot in slots:
                self._positions.pop(slot, None)
            if held:
                self._handle(on.SlotsLost(tuple(sorted(held))))

    def _lose_patience(self) -> None:
        """Give slots back whose last commit does not come."""
        held = self._letting_go & self._held
        self._held -= held
        for slot in held:
            self._positions.pop(slot, None)
        self._handle(on.SlotsLost(tuple(sorted(held))))

    def _read_slot(self, slot: int) -> None:
        incarnation, position = self._positions[slot]
        log = self.world.broker.logs[self.world.names.progress, slot]
        if position >= log.stable_end or self.world.chance(0.3):
            return
        count = self.world.random.choice((1, 2, 5, 50))
        for entry in log.read(position):
            self._polled.append(on.ProgressRead(slot, incarnation, entry.offset, entry.value))
            position = entry.offset + 1
            count -= 1
            if not count:
                break
        else:
            position = log.stable_end  # over markers and what was aborted
        self._polled.append(on.SlotPassed(slot, incarnation, position))
        self._positions[slot] = incarnation, position

    def _seek_start(self) -> None:
        world = self.world
        root = slot_of(ROOT_TOKEN, world.slots)
        assembler = ProgressAssembler()
        for entry in world.broker.logs[world.names.progress, root].read(0):
            record: ProgressRecord = entry.value
            whole = assembler.add(record.body, offset=entry.offset)
            if whole is not None and isinstance(whole[0], StreamStarted):
                self._seeks_start = False
                found = ProgressRecord(record.epoch, record.worker, whole[0])
                self._handle(on.StreamStartFound(found))
                return

    def _read_source(self) -> None:
        """Let one running query return something."""
        world = self.world
        if not self._queries or len(self._inbox) > 8:
            return
        query_id = world.random.choice(sorted(self._queries))
        token, query, left = self._queries[query_id]
        try:
            items = query.next(world.now_us) if left else _broke()
        except QueryDone:
            self._inbox.append(on.QueryEnded(token, query_id))
            del self._queries[query_id]
        except QueryBroke:
            error = SourceUnavailable("the service is unavailable")
            self._inbox.append(on.QueryFailed(token, query_id, error))
            del self._queries[query_id]
        else:
            if items:
                size = 10 * len(items)
                self.world.took(self, size)
                self._inbox.append(on.RecordsRead(token, query_id, items, size))
            self._queries[query_id] = token, query, left - 1

    def _take_inbox(self) -> None:
        self._handle(self._inbox.popleft())

    # ------------------------------------------------------------ the core

    def move(self, worker: Worker) -> None:
        """Go on in another object: whatever a snapshot leaves out is lost."""
        worker.restore(self.worker.snapshot())
        self.worker = worker

    def _handle(self, event: on.Event) -> None:
        world = self.world
        world.tell(self.name, "event", event)
        try:
            effects = self.worker.handle(event, now_us=world.now_us + world.skew_us(self.name))
            self.worker.check_invariants()
        except InvariantViolation as violation:
            world.broke(self, f"{violation}")
            return
        self._effects.extend(effects)

    def _carry_out(self, effect: do.Effect) -> None:
        self.world.tell(self.name, "effect", effect)
        if isinstance(effect, do.TransactionEffect):
            outcome = self._explained(self.publisher.carry_out(effect))
            if isinstance(
                outcome, on.TransactionAborted | on.CommitOutcomeUnknown | on.ProducerFenced
            ):
                self._void_transaction()
            if outcome is not None:
                self.world.tell(self.name, "outcome", outcome)
                self._outcomes.append(outcome)
            return
        match effect:
            case do.RecoverSlot():
                self._recover(effect)
            case do.FindStreamStart():
                self._seeks_start = True
            case do.StartQuery():
                query, calls = self.world.open_query(self, effect)
                self._queries[effect.query_id] = effect.token, query, calls
            case do.StopQuery():
                self._queries.pop(effect.query_id, None)
            case do.ReleaseBudget():
                self.world.gave_back(self, effect.size_bytes)
            case do.RestartProducer():
                self.publisher.start()
            case do.LetGoSlots():
                self._held.difference_update(effect.slots)
                for slot in effect.slots:
                    self._positions.pop(slot, None)
            case do.Stop():
                self._stop(effect.error)

    def _explained(self, outcome: on.Event | None) -> on.Event | None:
        """Tell a fence with what the group knows: who goes by the name now."""
        if not isinstance(outcome, on.ProducerFenced):
            return outcome
        holder = self.client.group.members.get(self.name)
        is_replaced = holder is not None and holder.member_id != self.client.member_id
        return on.ProducerFenced(has_successor=is_replaced)

    def _void_transaction(self) -> None:
        """Drop what is left of a transaction that failed."""
        kept = [effect for effect in self._effects if not isinstance(effect, do.TransactionEffect)]
        self._effects = deque(kept)

    def _recover(self, effect: do.RecoverSlot) -> None:
        broker, slot = self.world.broker, effect.slot
        if not broker.offsets_are_stable(slot):
            self._effects.appendleft(effect)  # the broker makes the client ask again
            return
        begin = broker.offsets.get(slot)
        self._positions[slot] = effect.incarnation, begin or 0
        end = broker.logs[self.world.names.progress, slot].uncommitted_end
        self._handle(
            on.SlotRecoveryBegun(
                slot, effect.incarnation, from_beginning=begin is None, end_offset=end
            )
        )

    def _stop(self, error: TidegateError | None) -> None:
        if error is None or isinstance(error, ProducerFencedError):
            self.world.exited(self, "drained" if error is None else "fenced")
        else:
            self.world.broke(self, f"stopped: {error}")


def _broke() -> NoReturn:
    raise QueryBroke
