"""A small world whose every step is chosen: a fixed script of changes, two workers, one fault.

Broker, group, publisher, node and the production cores are those of the random runs; only who does
what next is not drawn but asked for, and everything between two choices that no other one can see
is one action.  Time stands still, except that a worker's commit interval is over exactly when its
next transaction is chosen to begin.  Nothing in here reads a chance: draws have fixed answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.clients import Carried, NotedPublisher, OnCommit
from tests.simulation.exhaustive.node import Node
from tests.simulation.exhaustive.sameness import Names
from tests.simulation.exhaustive.script import BEGIN_US, NAMES, SLOTS, TOPIC, Answer, Script
from tests.simulation.history import Fenced, Finish, History, Published, QueryStart, SlotEntry
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import TransactionPhase, WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.memory.broker import Entry, Log, MemoryBroker, Outcome, Place, Transaction
from tidegate.producer.memory.group import ClientState, Group
from tidegate.producer.records import ChildPartitionsRecord
from tidegate.schemas.progress import (
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    StreamStarted,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


@dataclass(slots=True, eq=False)
class Ground:
    """What all have in common."""

    broker: MemoryBroker
    has_failed: bool = False  # the one fault has been

    def key(self, names: Names) -> tuple[int, ...]:
        """Return numbers for all that the future depends on: the logs', then the rest's."""
        broker = self.broker
        transactions = [
            (name, one.handle.epoch, one.outcome.name, tuple(sorted(one.offsets.items())))
            for name, one in broker._current.items()
            if not one.is_settled
        ]
        rest = (
            self.has_failed, tuple(transactions), tuple(sorted(broker.offsets.items())),
            tuple(sorted(broker._epochs.items())), names.of_object(broker.group),
            tuple(sorted(broker.claims.items())),
        )  # fmt: skip
        return *(_log_key(log, names) for log in broker.logs.values()), names.of(rest)

    def shown(self) -> dict[Place, tuple[Entry, ...]]:
        """Return what a `read_committed` reader gets now."""
        return {place: tuple(log.read(0)) for place, log in self.broker.logs.items()}

    def finished(self) -> Iterator[str]:
        """Yield the tokens whose completion marker is committed, shown or not."""
        for slot in range(SLOTS):
            for entry in self.broker.logs[NAMES.progress, slot].entries:
                transaction = entry.transaction
                is_committed = transaction is not None and transaction.outcome is Outcome.COMMITTED
                if is_committed and isinstance(entry.value.body, PartitionFinished):
                    yield entry.value.body.token


@dataclass(slots=True, eq=False)
class Actor:
    """A worker process, or the place where one was."""

    name: str
    node: Node | None = None  # None while it is dead
    is_refused: bool = False  # its group client has to notice first why its transaction was refused

    def key(self, names: Names) -> int:
        """Return a number for all that the future depends on."""
        node = self.node
        if node is None:
            return names.of(self.name)
        queries = sorted((token, len(query.answers)) for token, query in node.queries.values())
        client, publisher = node.client, node.publisher
        return names.of(
            (
                self.name, self.is_refused,
                names.of_object(node.worker),
                _epoch(publisher), names.of_object(_in_transaction(publisher)),
                (client.state.name, client.member_id, client.generation, client.owned),
                (tuple(client.callbacks), client.must_rejoin, node.releasing),
                frozenset(node.held), node.seeks_start, tuple(queries),
                tuple(node.positions.items()),
                names.of_object(node.effects), names.of_object(node.outcomes),
            )
        )  # fmt: skip

    def detach(self) -> None:
        """Forget the world around, so that a copy holds nothing but the process."""
        if self.node is not None:
            node: Any = self.node
            node.world = node.publisher.broker = node.membership.broker = node.client.group = None
            node.publisher.on_commit = None


def _epoch(publisher: NotedPublisher) -> int:
    return publisher.handle.epoch if publisher.handle is not None else 0


def _in_transaction(publisher: NotedPublisher) -> tuple[Any, ...]:
    """Return what a publisher keeps while a transaction is open, which the next one clears."""
    if not publisher.is_open:
        return ()
    return (
        publisher._metadata, publisher._queue, publisher._written, publisher._snapshots,
        publisher._carried.covers, publisher._carried.finished,
    )  # fmt: skip


def _log_key(log: Log, names: Names) -> int:
    entries = log.entries
    return names.of(tuple((e.offset, names.of_record(e.value), _standing(e, log)) for e in entries))


def _standing(entry: Entry, log: Log) -> str:
    """Return the state of an entry, as far as readers and writers can tell."""
    transaction = entry.transaction
    if transaction is None:
        return ""
    if transaction not in log.open:
        return "" if transaction.outcome is Outcome.COMMITTED else "aborted"
    handle = transaction.handle
    return f"{handle.transactional_id} {handle.epoch} {transaction.outcome.name}"


WORKERS = ("A", "B")
LOCAL_ACTIONS = frozenset({"read", "poll"})
"""Those that nobody but the worker itself can tell from their happening later."""
GROUP_ACTIONS = frozenset({"serve", "crash", "expel", "expire", "restart"})
"""Those that more than one worker may have a part in."""
_LOSSES = ("request lost", "reply lost", "request lost, asked again", "reply lost, asked again")
_INTERVAL_US = 250_000

Action = tuple[str, ...]  # what is done, by whom, and to what: as a trace prints it


class FixedAnswers(Random):
    """Answers every draw in one way: nothing that is a matter of chance happens."""

    def __init__(self, answer: float = 0.99) -> None:
        super().__init__(0)
        self._answer = answer

    def random(self) -> float:
        return self._answer

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a

    def shuffle(self, x: Any) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Query:
    """A running query: the rest of what it will answer."""

    answers: tuple[Answer, ...]


@dataclass(slots=True, eq=False)
class Notes:
    """What an action has done that no state shows."""

    at: int = 0
    queries: list[QueryStart] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    fenced: list[Fenced] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


class Stage:
    """The state of one small world; stands where a node expects its world.

    Made for one action, with the actors that have a part in it.
    """

    is_healing = False

    def __init__(self, script: Script, ground: Ground, actors: dict[str, Actor]) -> None:
        self.script, self.ground = script, ground
        self.broker = ground.broker
        self.actors = actors
        self.names = NAMES
        self.slots = SLOTS
        self.now_us = BEGIN_US
        self.random = FixedAnswers()
        self.notes = Notes()
        self._loss = ""  # what happens to the next commit
        for actor in actors.values():
            if actor.node is not None:
                actor.node.world = self
                actor.node.publisher.broker = actor.node.membership.broker = self.broker
                actor.node.publisher.on_commit = _CommitNote(self.notes, actor.name)
                actor.node.client.group = self.broker.group

    @classmethod
    def at_the_beginning(cls, script: Script) -> Stage:
        """Return the stage with both workers in the group, and the stream open if it is to be."""
        scenario = script.scenario
        topics = {TOPIC: scenario.topic_partitions, NAMES.progress: SLOTS}
        ground = Ground(MemoryBroker(topics, group=Group(SLOTS), settles_at_once=False))
        stage = cls(script, ground, {name: Actor(name) for name in WORKERS})
        for actor in stage.actors.values():
            stage._start(actor)
            stage._node(actor).client.work()
        stage._settle_group()
        if not scenario.opening:
            stage._open_stream()
        return stage

    def _open_stream(self) -> None:
        """Open it in the most ordinary way: each worker owns a slot then, with a snapshot in it.

        No worker has begun to read a stream partition.
        """
        order = ("serve", "seek", "poll", "read", "close", "mark", "begin")
        while any(n.worker.epoch is None or n.worker.transaction for n in self._living):
            actions = [one for actor in self.actors.values() for one in self.enabled(actor)]
            actions = [
                action for action in actions if action[0] != "read" or action[2] == ROOT_TOKEN
            ]
            self.do(min(actions + self.enabled_anywhere(), key=lambda one: order.index(one[0])))

    # ------------------------------------------------------------ what a node asks its world

    def commit_note(self, name: str) -> OnCommit:
        return _CommitNote(self.notes, name)

    def open_query(self, node: Node, effect: do.StartQuery) -> _Query:
        self.notes.at += 1
        start_us = effect.start_ns // 1000
        self.notes.queries.append(QueryStart(self.notes.at, node.name, effect.token, start_us))
        return _Query(self.script.answers(effect.token, start_us))

    def broke(self, node: Node, reason: str) -> None:
        node.is_alive = False
        self.notes.broken.append(f"{node.name}: {reason}")

    # ------------------------------------------------------------ what may happen

    def enabled(self, actor: Actor) -> list[Action]:
        """Return what an actor may do next; changes nothing.

        It depends on it and the ground alone.
        """
        name, node, members = actor.name, actor.node, self.broker.group.members
        if node is not None:
            return list(self._enabled_of(actor, node))
        actions: list[Action] = []
        if name in self.broker.open_transactions:
            actions.append(("time out", name))
        if name in members:
            actions += [("expire", name), ("restart", name)]
        elif self.script.scenario.returns:
            actions.append(("restart", name))
        return actions

    def enabled_anywhere(self) -> list[Action]:
        if not self.script.scenario.apart:
            return []
        actions: list[Action] = []
        for transaction in self.broker.unsettled:
            name = transaction.handle.transactional_id
            actions += [("mark", name, f"{t}[{n}]") for t, n in _unmarked(transaction)]
            if transaction.offsets:
                actions.append(("mark", name, "offsets"))
        return actions

    def faults(self, actor: Actor) -> list[Action]:
        name, node, scenario = actor.name, actor.node, self.script.scenario
        if self.ground.has_failed or node is None:
            return []
        actions: list[Action] = [("crash", name)] if name in scenario.crashes else []
        if name in scenario.expulsions:
            actions.append(("expel", name))
        if name in scenario.unknown and self._is_at_commit(node):
            actions += [(loss, name) for loss in _LOSSES]
        return actions

    def _enabled_of(self, actor: Actor, node: Node) -> Iterator[Action]:
        name, worker = node.name, node.worker
        if node.effects:
            # It waits for the offset of a slot; the loop does nothing else meanwhile.
            if self.broker.offsets_are_stable(node.effects[0].slot):
                yield "go on", name
            return
        if self._has_news(node):
            yield "serve", name
        if node.seeks_start and self._stream_start_shows():
            yield "seek", name
        for slot in sorted(node.positions):
            if self._has_more(node, slot):
                yield "poll", name, str(slot)
        transaction = worker.transaction
        is_publishing = transaction is not None and transaction.phase is TransactionPhase.PUBLISHING
        if transaction is None or (is_publishing and self.script.scenario.reads_within):
            # Later in a transaction a read makes no difference to one after it.
            for token, query in sorted(node.queries.values(), key=lambda q: q[0]):
                if query.answers:
                    yield "read", name, token
        if node.outcomes:
            yield "close", name
        elif transaction is None and not actor.is_refused:
            yield "begin", name  # void if nothing is to be said

    def _has_more(self, node: Node, slot: int) -> bool:
        """Tell whether a slot shows what its reader does not know from having written it."""
        _, position = node.positions[slot]
        log, held = self.broker.logs[NAMES.progress, slot], node.worker.slots.get(slot)
        if held is None or held.phase in (SlotPhase.ASSIGNED, SlotPhase.RECOVERING):
            return position < log.stable_end
        return any(isinstance(entry.value.body, PartitionAnnounced) for entry in log.read(position))

    def _is_at_commit(self, node: Node) -> bool:
        transaction = node.worker.transaction
        wanted = TransactionPhase.PUBLISHING
        if self.script.scenario.thirds:
            wanted = TransactionPhase.SNAPSHOTTING
        return bool(node.outcomes) and transaction is not None and transaction.phase is wanted

    def _has_news(self, node: Node) -> bool:
        client, group = node.client, self.broker.group
        if client.callbacks:
            return not node.releasing & node.held
        member = group.members.get(node.name)
        if client.state is ClientState.JOINING:
            return not group.is_preparing
        return client.state is ClientState.STABLE and (
            member is None or member.member_id != client.member_id
        )

    def _stream_start_shows(self) -> bool:
        log = self.broker.logs[NAMES.progress, slot_of(ROOT_TOKEN, SLOTS)]
        return any(isinstance(entry.value.body, StreamStarted) for entry in log.read(0))

    # ------------------------------------------------------------ doing it

    def do(self, action: Action) -> None:
        """Do an action, and all that follows from it unseen."""
        kind, name = action[0], action[1]
        if kind == "mark":
            self._mark(name, action[2])
            return
        actor, ground = self.actors[name], self.ground
        match kind:
            case "serve":
                self._serve(actor)
            case "seek":
                self._node(actor).seek_start()
            case "go on":
                pass
            case "poll":
                self._poll(actor, int(action[2]))
            case "read":
                self._read(actor, action[2])
            case "begin":
                node = self._node(actor)
                node.clock.now_us = BEGIN_US + _INTERVAL_US
                node.handle(on.Ticked())
                node.clock.now_us = BEGIN_US
            case "close":
                self._close(actor)
            case "crash":
                ground.has_failed = True
                actor.node, actor.is_refused = None, False
            case "expel":
                ground.has_failed = True
                ground.broker.group.expire(name)
            case _ if kind in _LOSSES:
                ground.has_failed, self._loss = True, kind
                self._close(actor)
            case "time out":
                ground.broker.time_out(name)
            case "expire":
                ground.broker.group.expire(name)
            case "restart":
                self._start(actor)
                self._node(actor).client.work()
        self._carry_out(actor)
        if not self.script.scenario.apart:
            for transaction in self.broker.unsettled:
                while not transaction.is_settled:
                    self.broker.write_marker(transaction, 0)
        if kind in GROUP_ACTIONS:
            self._settle_group()

    @property
    def _living(self) -> list[Node]:
        return [actor.node for actor in self.actors.values() if actor.node is not None]

    def _node(self, actor: Actor) -> Node:
        if actor.node is None:
            raise LookupError(f"{actor.name} is dead")
        return actor.node

    def _start(self, actor: Actor) -> None:
        scenario = self.script.scenario
        topic = DataTopic(TOPIC, "id", scenario.topic_partitions, 1)
        worker = Worker(
            name=actor.name, epoch=f"epoch-{actor.name}",
            identity=StreamIdentity(
                "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "sim-fleet", SLOTS, "pid", (topic,)
            ),
            start_ns=BEGIN_US * 1000, end_ns=None,
            limits=WorkerLimits(
                commit_interval_us=_INTERVAL_US,
                queries=QueryLimits(stall_after_us=1 << 60),  # silence is no action here
            ),
        )  # fmt: skip
        actor.node = Node(self, actor.name, worker, now_us=BEGIN_US)

    def _serve(self, actor: Actor) -> None:
        node = self._node(actor)
        actor.is_refused = False
        if not node.client.callbacks:
            node.client.work()
        if node.client.callbacks:
            node.serve(node.client.callbacks[0])

    def _poll(self, actor: Actor, slot: int) -> None:
        """Read a slot up to where its next announcement but one stands, or to its stable end.

        Other places to stop at make no difference to what the core knows.
        """
        node = self._node(actor)
        incarnation, position = node.positions[slot]
        log = self.broker.logs[NAMES.progress, slot]
        stable = log.stable_end
        has_announced = False
        for entry in log.read(position):
            if isinstance(entry.value.body, PartitionAnnounced):
                if has_announced:
                    return
                has_announced = True
            node.positions[slot] = incarnation, entry.offset + 1
            node.handle(on.ProgressRead(slot, incarnation, entry.offset, entry.value))
            self._carry_out(actor)
        if node.positions.get(slot, (-1, 0))[0] == incarnation:
            node.positions[slot] = incarnation, stable
        node.handle(on.SlotPositionAdvanced(slot, incarnation, stable))

    def _read(self, actor: Actor, token: str) -> None:
        """Take the next answer of a query; the children and the query's end come together."""
        node = self._node(actor)
        query_id, query = next((i, q) for i, (t, q) in node.queries.items() if t == token)
        first, rest = query.answers[0], query.answers[1:]
        node.queries[query_id] = token, _Query(rest)
        node.handle(on.RecordsRead(token, query_id, list(first), 10))
        if isinstance(first[0], ChildPartitionsRecord):
            self._carry_out(actor)
            node.queries.pop(query_id, None)
            node.handle(on.QueryEnded(token, query_id))

    def _close(self, actor: Actor) -> None:
        """Go on with the transaction: to its end, or one step."""
        node = self._node(actor)
        transaction = node.worker.transaction
        was_first = transaction is not None and transaction.phase is TransactionPhase.PUBLISHING
        node.handle(node.outcomes.popleft())
        self._carry_out(actor)
        if node.outcomes and was_first and not self.script.scenario.thirds:
            node.handle(node.outcomes.popleft())
            self._carry_out(actor)

    def _carry_out(self, actor: Actor) -> None:
        """Carry out what the core asks for, up to the next wait for deliveries."""
        node = actor.node
        while node is not None and node.is_alive:
            if node.effects:
                effect = node.effects[0]
                is_recovery = isinstance(effect, do.RecoverSlot)
                if is_recovery and not self.broker.offsets_are_stable(effect.slot):
                    return
                if self._loss and isinstance(effect, do.CommitTransaction):
                    node.effects.popleft()
                    node.outcomes.append(self._lose(node))
                else:
                    node.go_on()
            elif node.has_recovered():
                pass
            elif node.outcomes and not isinstance(node.outcomes[0], on.Delivered):
                outcome = node.outcomes.popleft()
                node.handle(outcome)
                if isinstance(outcome, on.TransactionAborted):
                    actor.is_refused = self._has_news(node)
            else:
                return

    def _lose(self, node: Node) -> on.Event:
        """Let a commit's request or its reply be lost, and the question be asked again or not."""
        which, self._loss = self._loss, ""
        if which.startswith("reply"):
            node.publisher.commit()
        node.publisher.is_open = which.endswith("asked again")
        if node.publisher.is_open:
            return on.CommitUnanswered("no answer")
        return on.CommitOutcomeUnknown("no answer, and no way to ask")

    def _mark(self, name: str, place: str) -> None:
        unsettled = self.broker.unsettled
        transaction = next(one for one in unsettled if one.handle.transactional_id == name)
        names = [f"{t}[{n}]" for t, n in _unmarked(transaction)]
        number = len(names) if place == "offsets" else names.index(place)
        self.broker.write_marker(transaction, number)

    def _settle_group(self) -> None:
        """Let members join a round as soon as they can; no participant can tell that from later."""
        group = self.broker.group
        for node in [node for _ in WORKERS for node in self._living]:
            member, client = group.members.get(node.name), node.client
            is_known = member is not None and member.member_id == client.member_id
            is_wanted = group.is_preparing or client.must_rejoin
            if is_known and is_wanted and not client.callbacks:
                client.work()
        group.complete()

    # ------------------------------------------------------------ what it is

    def history(self) -> History:
        """Return what happened in one action, and what the logs hold after it."""
        return History(
            start_us=BEGIN_US, slots=SLOTS, progress_topic=NAMES.progress,
            committed=list(self.script.committed), lineage=self.script.lineage,
            published=[
                Published(
                    *place, e.offset, e.value.order_key, e.value.key, origin=e.value.origin
                )
                for place, log in self.broker.logs.items()
                if place[0] == TOPIC
                for e in log.read(0)
            ],
            progress=[
                SlotEntry(slot, entry.offset, entry.value)
                for slot in range(SLOTS)
                for entry in self.broker.logs[NAMES.progress, slot].read(0)
            ],
            queries=list(self.notes.queries), finishes=list(self.notes.finishes),
            fenced=list(self.notes.fenced), broken=list(self.notes.broken),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class _CommitNote:
    """Notes the commits of one publisher."""

    notes: Notes
    name: str

    def __call__(self, transaction: Transaction, carried: Carried) -> None:
        notes = self.notes
        notes.at += 1
        notes.fenced.append(
            Fenced(
                notes.at, self.name, frozenset(carried.covers), transaction.owned_at_fence,
                transaction.was_checked, frozenset(transaction.offsets), transaction.after_fence,
            )
        )  # fmt: skip
        notes.finishes += [Finish(notes.at, self.name, token) for token in carried.finished]


def _unmarked(transaction: Transaction) -> list[Place]:
    return [log.place for log in transaction.unmarked]
