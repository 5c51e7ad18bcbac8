"""One worker process whose every effect is an action: the production core and effect runner.

The loop and its threads cannot be here: a search compares and copies states, and the stack of a
thread can be neither compared nor copied.  What is missing is what the loop adds to the runner:
the order in which it looks at the group, the slots and the readers, which the search replaces by
every order.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.clients import NotedPublisher
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.memory.group import Callback
from tidegate.producer.memory.membership import MemoryMembership
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_chunks import ProgressAssembler
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


class StageClock:
    """Stands still, but for the moment when a commit interval is over."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def monotonic_us(self) -> int:
        return self.now_us

    wall_us = monotonic_us

    def sleep(self, seconds: float) -> None:
        raise AssertionError("no action waits for time to pass")


class _Query:
    """A running query, which is a reader without a thread."""

    def __init__(self, node: Node, query_id: int) -> None:
        self._node, self._query_id = node, query_id

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._node.queries.pop(self._query_id, None)


class Node:
    """One worker, whose effects the search carries out one at a time."""

    def __init__(self, stage, name: str, worker: Worker, *, now_us: int) -> None:
        self.world, self.name = stage, name
        self.is_alive = True
        self.clock = StageClock(now_us)
        self.queries: dict[int, tuple[str, Any]] = {}
        """Query id -> (token, the rest of what it will answer)."""
        self.releasing: frozenset[int] = frozenset()
        broker, topic = stage.broker, stage.names.progress
        self.publisher = NotedPublisher(
            broker, name=name, progress_topic=topic, on_commit=stage.commit_note(name)
        )
        self.runner = EffectRunner(
            worker,
            publisher=self.publisher,
            open_reader=self._open_query,
            open_stream_start=object,
            deliver=self.handle,
            release_budget=self._release,
            clock=self.clock,
        )
        self.membership = MemoryMembership(
            broker, worker=name, client_id=name, topic=topic, listener=self, clock=self.clock
        )
        self.runner.attach(self.membership)
        self.publisher.start()
        self.membership.start()
        # No operator says anything in these worlds, which every worker knows from the start.
        self.handle(on.RootSlotRead((), is_at_end=True))

    @property
    def worker(self) -> Worker:
        return self.runner.worker

    @property
    def client(self) -> Any:
        return self.membership.client

    @property
    def held(self) -> set[int]:
        return self.runner.held

    @property
    def positions(self) -> dict[int, tuple[int, int]]:
        return self.membership.positions

    @property
    def effects(self) -> Any:
        return self.runner._effects

    @property
    def outcomes(self) -> Any:
        """What happened, and the core does not know yet."""
        return self.runner._events

    @property
    def seeks_start(self) -> bool:
        return self.runner.stream_start is not None

    def handle(self, event: on.Event) -> None:
        """Pass an event to the core, ahead of outcomes that it does not know yet."""
        self.runner.pass_on(event)
        if not self.runner.is_stopped:
            self.worker.check_invariants()
        self._note_stop()

    def has_recovered(self) -> bool:
        """Tell the core of a recovery that started, before anything that is read from there."""
        started = (
            outcome for outcome in self.outcomes if isinstance(outcome, on.SlotRecoveryStarted)
        )
        event = next(started, None)
        if event is None:
            return False
        self.outcomes.remove(event)
        self.handle(event)
        return True

    def go_on(self) -> None:
        self.runner.run_next()
        self._note_stop()

    def serve(self, callback: Callback) -> None:
        """Serve a callback of the group, or finish serving it; does not wait for a release."""
        client, (kind, slots) = self.client, callback
        held = slots & self.held
        if kind == "assigned":
            client.done(callback)
            self.held.update(slots)
            self.handle(on.SlotsAssigned(tuple(sorted(slots))))
        elif kind == "lost":
            client.done(callback)
            self.releasing = frozenset()
            self.held.difference_update(slots)
            self._stop_reading(slots)
            if held:
                self.handle(on.SlotsLost(tuple(sorted(held))))
        elif not held:
            client.done(callback)
            self._stop_reading(slots)
            self.releasing = frozenset()
        elif not self.releasing:
            self.releasing = frozenset(held)
            self.handle(on.SlotsRevoked(tuple(sorted(held))))

    def seek_start(self) -> None:
        stage = self.world
        assembler = ProgressAssembler()
        root_slot = slot_of(ROOT_TOKEN, stage.slots)
        for entry in stage.broker.logs[stage.names.progress, root_slot].read():
            record: Any = entry.value
            whole = assembler.add(record.body, offset=entry.offset)
            if whole is not None and isinstance(whole[0], StreamStarted):
                self.runner.stream_start = None
                found = ProgressRecord(record.epoch, record.worker, whole[0])
                self.handle(on.StreamStartFound(found))
                return

    def _stop_reading(self, slots: frozenset[int]) -> None:
        for slot in slots:
            self.positions.pop(slot, None)

    def _open_query(self, query: do.StartQuery, _deliver: Any) -> _Query:
        self.queries[query.query_id] = query.token, self.world.open_query(self, query)
        return _Query(self, query.query_id)

    def _release(self, _sizes: Any) -> None:
        pass

    def _note_stop(self) -> None:
        if self.runner.is_stopped and self.is_alive:
            self.world.broke(self, f"stopped: {self.runner.error}")
        if self.runner.worker.stopped and self.is_alive:
            self.world.broke(self, f"stopped: {self.runner.worker.stopped}")
