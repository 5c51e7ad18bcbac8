"""What the loop relies on in a publisher and a membership, as cases for any implementation.

The same cases run against `producer/memory` and, with a real broker, against `producer/kafka`, each
on a stage: a broker with an empty progress topic.  `worker(name)` starts a process under a worker's
name, `finder()` a search for the stream's start in slot 0; `dead_letters()` are those that a
`read_committed` reader finds; `truncate(slot, below)` deletes records as `kafka-delete-records`
does.  `until(condition, *workers)` lets time pass and polls these workers, and fails if the
condition never holds; `let_pass()` carries on what happens between polls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.messages import FORM_RECORD, FORM_REDRIVEN, ParkedChange, PublishableRecord
from tidegate.producer.ports import Membership, Publisher
from tidegate.schemas.errors import ProducerError
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    StreamControl,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.topics import slot_of

SLOTS = 4
EVERY_SLOT = frozenset(range(SLOTS))
CASES: list[Callable[[Any], None]] = []


@dataclass
class TestWorker:
    """A publisher and a membership of one process; it agrees to every rebalance."""

    __test__ = False

    name: str
    slots: set[int] = field(default_factory=set)
    callbacks: list[str] = field(default_factory=list)
    events: list[on.Event] = field(default_factory=list)
    incarnations: int = 0
    publisher: Publisher = field(init=False)
    membership: Membership = field(init=False)

    def slots_assigned(self, slots: tuple[int, ...]) -> None:
        self.callbacks += ["assigned"] if slots else []
        self.slots.update(slots)
        for slot in slots:
            self.incarnations += 1
            self.events.append(self.membership.recover(slot, self.incarnations))

    def slots_revoked(self, slots: tuple[int, ...]) -> None:
        self.callbacks += ["revoked"] if slots else []
        self.slots.difference_update(slots)

    def slots_lost(self, slots: tuple[int, ...]) -> None:
        self.callbacks += ["lost"] if slots else []
        self.slots.difference_update(slots)

    def serve(self) -> None:
        self.events += self.membership.poll(0.01)

    def read(self, slot: int) -> list[tuple[int, ProgressRecord]]:
        newest = max(self.recoveries(slot), key=lambda event: event.incarnation).incarnation
        return [
            (event.offset, event.record)
            for event in self.events
            if isinstance(event, on.ProgressRead)
            and (event.slot, event.incarnation) == (slot, newest)
        ]

    def position(self, slot: int) -> int:
        positions = [
            event.position
            for event in self.events
            if isinstance(event, on.SlotPositionAdvanced) and event.slot == slot
        ]
        return positions[-1] if positions else -1

    def recoveries(self, slot: int) -> list[on.SlotRecoveryStarted]:
        return [
            event
            for event in self.events
            if isinstance(event, on.SlotRecoveryStarted) and event.slot == slot
        ]


def _announced(token: str) -> ProgressRecord:
    return ProgressRecord("e", "w", PartitionAnnounced(ChildPartition(token, (), 1), "p"))


def _snapshot(slot: int, *, revision: int = 1, watermark_us: int | None = None) -> ProgressRecord:
    token = TokenSnapshot("t", 0, (), ("",), watermark_us or 0, number=0)
    tokens = () if watermark_us is None else (token,)
    return ProgressRecord("e", "w", SlotProgress(slot, revision, 0, 10_000, (), tokens))


def _owner(stage, name: str = "first") -> TestWorker:
    worker = stage.worker(name)
    stage.until(lambda: worker.slots == EVERY_SLOT, worker)
    return worker


def _commit(
    worker: TestWorker, slot: int, token: str, snapshot: ProgressRecord | None = None
) -> int:
    snapshot = snapshot or _snapshot(slot)
    publisher = worker.publisher
    assert publisher.begin(worker.membership.metadata()) is None
    assert publisher.publish_progress(do.PublishProgress(slot, slot, _announced(token))) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert publisher.publish_progress(do.PublishProgress(slot, None, snapshot)) is None
    delivered = publisher.await_delivery()
    assert isinstance(delivered, on.Delivered)
    assert publisher.send_offsets(((slot, delivered.snapshots[slot]),)) is None
    assert publisher.commit() == on.TransactionCommitted()
    return delivered.snapshots[slot]


@CASES.append
def committed_records_are_read_with_their_incarnation(stage):
    worker = _owner(stage)
    offset = _commit(worker, 2, "child")
    stage.until(lambda: len(worker.read(2)) == 2, worker)

    assert worker.read(2) == [(offset - 1, _announced("child")), (offset, _snapshot(2))]


@CASES.append
def announcements_alone_are_read_until_the_slot_is_recovered_again(stage):
    worker = _owner(stage)
    incarnation = worker.recoveries(2)[-1].incarnation
    worker.membership.read_announcements(2, incarnation - 100)  # another one's
    first = _commit(worker, 2, "first")
    stage.until(lambda: len(worker.read(2)) == 2, worker)
    worker.membership.read_announcements(2, incarnation)
    second = _commit(worker, 2, "second")
    stage.until(lambda: worker.position(2) > second, worker)
    assert [offset for offset, _ in worker.read(2)] == [first - 1, first, second - 1]
    assert worker.read(2)[-1][1] == _announced("second")

    worker.events.append(worker.membership.recover(2, 99))
    stage.until(lambda: bool(worker.read(2)), worker)
    assert worker.read(2) == [(second, _snapshot(2))]


@CASES.append
def a_delivery_is_cumulative_and_names_the_last_offsets(stage):
    worker = _owner(stage)
    publisher = worker.publisher
    publisher.begin(worker.membership.metadata())
    for token in ("one", "two"):
        publisher.publish_progress(do.PublishProgress(1, 3, _announced(token)))
    first = publisher.await_delivery()
    publisher.publish_progress(do.PublishProgress(3, None, _snapshot(3)))
    second = publisher.await_delivery()

    assert isinstance(first, on.Delivered)
    assert isinstance(second, on.Delivered)
    ((number, offset),) = [(o.topic_partition, o.offset) for o in first.written[3]]
    assert (number, offset) == (1, 1)
    assert second.written == first.written
    assert (first.snapshots, second.snapshots) == ({}, {3: 0})
    assert isinstance(publisher.abort("enough"), on.TransactionAborted)


@CASES.append
def an_aborted_transaction_is_never_read(stage):
    worker = _owner(stage)
    publisher = worker.publisher
    publisher.begin(worker.membership.metadata())
    publisher.publish_progress(do.PublishProgress(1, 1, _announced("void")))
    publisher.await_delivery()
    assert publisher.abort("because") == on.TransactionAborted("because")
    offset = _commit(worker, 1, "kept")
    stage.until(lambda: len(worker.read(1)) == 2, worker)

    assert worker.read(1)[0] == (offset - 1, _announced("kept"))


@CASES.append
def without_a_membership_nothing_is_published(stage):
    worker = stage.worker("first")
    assert worker.membership.metadata() is None
    assert isinstance(worker.publisher.begin(None), on.TransactionAborted)


@CASES.append
def a_recovery_starts_at_the_committed_offset(stage):
    worker = _owner(stage)
    assert all(worker.recoveries(slot)[-1].committed_offset is None for slot in EVERY_SLOT)
    offset = _commit(worker, 2, "child")
    worker.events.append(worker.membership.recover(2, 99))
    recovery = worker.recoveries(2)[-1]
    stage.until(lambda: bool(worker.read(2)), worker)

    assert (recovery.incarnation, recovery.committed_offset) == (99, offset)
    assert recovery.end_offset > offset
    assert worker.read(2) == [(offset, _snapshot(2))]


@CASES.append
def an_offset_that_is_gone_is_reported_and_nothing_is_read_instead(stage):
    worker = _owner(stage)
    _commit(worker, 2, "child")
    end = worker.membership.recover(2, 99).end_offset
    stage.truncate(2, end)
    worker.events.clear()
    worker.incarnations = 100
    worker.events.append(worker.membership.recover(2, worker.incarnations))
    _until_out_of_range(stage, worker)

    assert not worker.read(2)


def _until_out_of_range(stage, worker: TestWorker) -> None:
    """Wait for the report about slot 2; its newest incarnation may be that of a new client."""
    stage.until(lambda: on.SlotOutOfRange in map(type, worker.events), worker)

    (failed, *_) = (event for event in worker.events if isinstance(event, on.SlotOutOfRange))
    assert (failed.slot, failed.incarnation) == (2, worker.recoveries(2)[-1].incarnation)


@CASES.append
def a_slot_whose_reading_has_failed_can_be_recovered_again(stage):
    worker = _owner(stage)
    _commit(worker, 2, "child")
    stage.truncate(2, worker.membership.recover(2, 99).end_offset)
    worker.membership.recover(2, 100)
    stage.let_pass()
    worker.incarnations = 101
    worker.events.append(worker.membership.recover(2, worker.incarnations))
    _until_out_of_range(stage, worker)


@CASES.append
def a_fence_with_old_metadata_aborts(stage):
    first = _owner(stage)
    former = first.membership.metadata()
    second = stage.worker("second")
    stage.until(lambda: len(first.slots) == len(second.slots) == SLOTS // 2, first, second)
    publisher = first.publisher
    assert publisher.begin(former) is None

    assert isinstance(publisher.send_offsets(((0, 1),)), on.TransactionAborted)


@CASES.append
def a_rejoin_revokes_the_slots_and_assigns_them_again(stage):
    worker = _owner(stage)
    worker.membership.rejoin()
    stage.until(lambda: "revoked" in worker.callbacks, worker)
    stage.until(lambda: worker.slots == EVERY_SLOT, worker)

    assert worker.callbacks == ["assigned", "revoked", "assigned"]


@CASES.append
def a_new_client_loses_the_slots_and_is_assigned_them_again(stage):
    worker = _owner(stage)
    worker.membership.replace_client()
    assert worker.callbacks == ["assigned"]
    stage.until(lambda: "lost" in worker.callbacks, worker)
    stage.until(lambda: worker.slots == EVERY_SLOT, worker)

    assert worker.callbacks == ["assigned", "lost", "assigned"]


@CASES.append
def a_former_process_gets_no_new_client(stage):
    former = _owner(stage)
    stage.worker("first")
    former.membership.replace_client()

    with pytest.raises(ProducerError):
        former.membership.poll(0.1)


@CASES.append
def a_process_that_was_replaced_can_tell(stage):
    former = _owner(stage)
    former.publisher.begin(former.membership.metadata())
    former.publisher.publish_progress(do.PublishProgress(1, 1, _announced("void")))
    former.publisher.await_delivery()
    assert not former.membership.has_successor()
    heir = stage.worker("first")

    assert isinstance(former.publisher.commit(), on.ProducerFenced)
    assert former.membership.has_successor()
    assert not heir.membership.has_successor()


@CASES.append
def the_stream_start_is_found_once_it_is_committed(stage):
    finder = stage.finder()
    stage.until(lambda: finder.poll(0.1) == (None, True))
    worker = _owner(stage)
    _commit(worker, 0, "child")
    body = StreamStarted(
        "s", "GOOGLE_STANDARD_SQL", start_ns=1, end_ns=None, group="g", slots=SLOTS,
        progress_topic_id="p", topics=(), children=(),
    )  # fmt: skip
    started = ProgressRecord("e", "w", body)
    publisher = worker.publisher
    publisher.begin(worker.membership.metadata())
    publisher.publish_progress(do.PublishProgress(0, 0, started))
    publisher.await_delivery()
    publisher.commit()
    found: list[ProgressRecord] = []

    def is_found() -> bool:
        record, _ = finder.poll(0.1)
        found.extend([] if record is None else [record])
        return bool(found)

    stage.until(is_found)
    finder.close()
    assert found == [started]


@CASES.append
def parked_changes_are_of_their_transaction_and_in_no_vector(stage):
    worker = _owner(stage)
    publisher = worker.publisher
    parked = tuple(
        ParkedChange("t", b"k", bytes([n]), b"U", b"{}", FORM_RECORD, "SchemaError", "a text", "s")
        for n in range(2)
    )
    marker = parked[1]._replace(form=FORM_REDRIVEN, content=b"", reason="", error="", token="")
    aborted = PublishableRecord(1, "tx", "0", (), (parked[0]._replace(order_key=b"aborted"),))
    record = PublishableRecord(2, "tx", "1", (), (*parked, marker))

    publisher.begin(worker.membership.metadata())
    assert publisher.publish_records(do.PublishRecords(1, "s", (aborted,))) is None
    delivered = publisher.await_delivery()
    assert isinstance(delivered, on.Delivered)
    assert delivered.written.get(1, ()) == ()
    assert isinstance(publisher.abort("the case requires it"), on.TransactionAborted)
    assert stage.dead_letters() == []

    publisher.begin(worker.membership.metadata())
    assert publisher.publish_records(do.PublishRecords(1, "s", (record,))) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert publisher.commit() == on.TransactionCommitted()
    assert stage.dead_letters() == [*parked, marker]


@CASES.append
def the_fleet_is_followed_through_committed_records_only(stage):
    worker = _owner(stage)
    for slot in range(SLOTS):
        _commit(worker, slot, f"child {slot}", _snapshot(slot, watermark_us=10 + slot))
    follower = stage.worker("second")  # without a slot it reads all of them as well
    follower.membership.follow("e", with_moves=False)
    stage.until(lambda: _fleet(follower) == ({0: 10, 1: 11, 2: 12, 3: 13}, True), follower)

    publisher = worker.publisher
    assert publisher.begin(worker.membership.metadata()) is None
    lost = do.PublishProgress(1, None, _snapshot(1, revision=2, watermark_us=99))
    assert publisher.publish_progress(lost) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    publisher.abort("the case requires it")
    _commit(worker, 1, "child", _snapshot(1, revision=2, watermark_us=20))
    before = len(follower.events)
    stage.until(lambda: _fleet(follower) == ({0: 10, 1: 20, 2: 12, 3: 13}, True), follower)
    stage.until(lambda: _confirmations(follower, before) > 1, follower)
    assert all(
        event.lowest_us in ({}, {1: 20})
        for event in follower.events[before:]
        if isinstance(event, on.FleetRead)
    )


@CASES.append
def a_fleet_that_publishes_all_the_time_is_seen_as_it_is(stage):
    worker = _owner(stage)
    worker.membership.follow("e", with_moves=False)
    revision = 0

    def is_confirmed_again() -> bool:
        """Publish once more in every slot, so that none is quiet when it is read."""
        nonlocal revision
        revision += 1
        for slot in range(SLOTS):
            beat = _snapshot(slot, revision=revision, watermark_us=10 + revision)
            _commit(worker, slot, f"child {slot}", beat)
            worker.serve()
        return _confirmations(worker, 0) > 1

    stage.until(is_confirmed_again, worker)


@CASES.append
def a_source_is_named_once_it_is_published(stage):
    worker, slot = _owner(stage), slot_of("t", SLOTS)
    worker.membership.follow("e", with_moves=True)
    worker.membership.await_sources([("t", 20), ("t", 30)])
    _commit(worker, slot, "child", _snapshot(slot, revision=1, watermark_us=19))
    stage.until(lambda: _fleet(worker)[0].get(slot) == 19, worker)
    assert _published(worker) == []

    _commit(worker, slot, "child", _snapshot(slot, revision=2, watermark_us=20))
    stage.until(lambda: _published(worker) != [], worker)
    assert _published(worker) == [("t", 20)]
    # Another worker may ask for what has been published long ago.
    worker.membership.await_sources([("t", 10)])
    stage.until(lambda: _published(worker) == [("t", 20), ("t", 10)], worker)


@CASES.append
def what_is_written_without_a_fence_reaches_every_worker(stage):
    owner, other = _owner(stage), stage.worker("second")
    stage.until(lambda: all(_reads(one) == ([], True) for one in (owner, other)), owner, other)
    record = ProgressRecord("e", "w", StreamControl(1, ControlState.PAUSED, "me", 0))
    publisher = other.publisher
    assert publisher.begin(b"") is None
    assert publisher.publish_progress(do.PublishProgress(0, 0, record)) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert publisher.commit() == on.TransactionCommitted()
    stage.until(
        lambda: all(_reads(one) == ([record], True) for one in (owner, other)), owner, other
    )


@CASES.append
def a_member_that_leaves_frees_its_slots(stage):
    first, second = _two_owners(stage)
    second.membership.close(leaves_group=True)
    stage.until(lambda: first.slots == EVERY_SLOT, first)


@CASES.append
def a_member_that_is_closed_keeps_its_place(stage):
    first, second = _two_owners(stage)
    kept, callbacks = set(second.slots), list(first.callbacks)
    second.membership.close()
    heir = stage.worker("second")
    stage.until(lambda: heir.slots == kept, first, heir)
    assert first.callbacks == callbacks


def _two_owners(stage) -> tuple[TestWorker, TestWorker]:
    first, second = _owner(stage), stage.worker("second")

    def is_shared() -> bool:
        return bool(second.slots) and first.slots | second.slots == EVERY_SLOT

    stage.until(lambda: is_shared() and len(second.slots) == SLOTS // 2, first, second)
    return first, second


def _reads(worker: TestWorker) -> tuple[list[ProgressRecord], bool]:
    events = [event for event in worker.events if isinstance(event, on.RootSlotRead)]
    records = [record for event in events for record in event.records]
    return records, any(event.is_at_end for event in events)


def _published(worker: TestWorker) -> list[tuple[str, int]]:
    events = [event for event in worker.events if isinstance(event, on.FleetRead)]
    return [one for event in events for one in event.published]


def _fleet(worker: TestWorker) -> tuple[dict[int, int | None], bool]:
    lowest_us: dict[int, int | None] = {}
    is_current = False
    for event in worker.events:
        if isinstance(event, on.FleetRead):
            lowest_us |= event.lowest_us
            is_current = event.is_current
    return lowest_us, is_current


def _confirmations(worker: TestWorker, begin: int) -> int:
    events = [event for event in worker.events[begin:] if isinstance(event, on.FleetRead)]
    return sum(event.is_current for event in events)
