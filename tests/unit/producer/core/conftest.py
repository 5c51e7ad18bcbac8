"""A worker on a log in memory: slots with offsets, one open transaction, outcomes on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.spanner_records import ChildPartitionsRecord, HeartbeatRecord
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TopicOffset,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable

START_US = 1_700_000_000_000_000
SLOTS = 4
TOPIC = "bank.accounts"


@dataclass
class Log:
    """What Kafka holds: committed progress records per slot, committed data, committed offsets."""

    slots: dict[int, list[ProgressRecord | None]] = field(
        default_factory=lambda: {slot: [] for slot in range(SLOTS)}
    )
    data: list[ChangeMessage] = field(default_factory=list)
    fence: dict[int, int] = field(default_factory=dict)


class Bench:
    """Runs one worker: carries its effects out on the log, and what comes of them goes back in."""

    def __init__(self, log: Log, *, name: str = "w1", end_ns: int | None = None) -> None:
        self.log = log
        self.now_us = START_US
        identity = StreamIdentity(
            "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "g", SLOTS, "pid",
            (DataTopic(TOPIC, "tid", 1, 1),),
        )  # fmt: skip
        self.worker = Worker(
            name=name, epoch=f"epoch-of-{name}", identity=identity,
            start_ns=START_US * 1000, end_ns=end_ns,
        )  # fmt: skip
        self.queries: dict[str, do.StartQuery] = {}
        self.effects: list[do.Effect] = []
        self.stopped: list[do.Stop] = []
        self.outcome: on.Event | None = None
        self.commits_in_silence = False
        self.answers_commits = True
        self.positions: dict[int, int] = {}
        self.incarnations: dict[int, int] = {}
        self._staged: list[tuple[int, int | None, ProgressRecord]] = []
        self._staged_data: list[tuple[int, ChangeMessage]] = []
        self._flushed = 0
        self._offsets: tuple[tuple[int, int], ...] = ()

    # -- records

    @staticmethod
    def change(
        at_us: int, transaction: str = "t1", sequence: str = "00000000"
    ) -> PublishableRecord:
        """Return a record of one change."""
        key = OrderKey(at_us, transaction, sequence_pair(sequence), 0).encode()
        message = ChangeMessage(TOPIC, b"key", b"value", key, b"I")
        return PublishableRecord(at_us, transaction, sequence, (message,))

    @staticmethod
    def heartbeat(at_us: int) -> HeartbeatRecord:
        """Return a heartbeat."""
        return HeartbeatRecord(at_us * 1000)

    @staticmethod
    def children(
        *tokens: str, start_us: int, parents: tuple[str, ...] = ()
    ) -> ChildPartitionsRecord:
        """Return a child partitions record."""
        kids = tuple(ChildPartition(token, parents, start_us * 1000) for token in tokens)
        return ChildPartitionsRecord(start_us * 1000, "00000000", kids)

    # -- giving events

    def give(self, event: on.Event) -> list[do.Effect]:
        """Handle an event and everything that follows from it; return all effects in order."""
        waiting, seen = [event], []
        while waiting:
            effects = self.worker.handle(waiting.pop(0), now_us=self.now_us)
            self.worker.check_invariants()
            seen += effects
            for effect in effects:
                outcome = self._carry_out(effect)
                if outcome is not None:
                    waiting.append(outcome)
        self.effects += seen
        return seen

    def own(self, *slots: int) -> None:
        """Assign slots and read them to their end."""
        self.give(on.SlotsAssigned(slots))
        self.read()

    def read(self) -> None:
        """Read every owned slot to its end, until nothing new comes."""
        while any(
            self.positions[slot] < len(self.log.slots[slot])
            for slot in self.worker.slots
            if slot in self.positions
        ):
            for slot in list(self.worker.slots):
                for offset in range(self.positions[slot], len(self.log.slots[slot])):
                    self.positions[slot] = offset + 1
                    record = self.log.slots[slot][offset]
                    if record is None:
                        self.give(on.SlotPassed(slot, self.incarnations[slot], offset + 1))
                    else:
                        self.give(on.ProgressRead(slot, self.incarnations[slot], offset, record))
        for slot in list(self.worker.slots):
            end = len(self.log.slots[slot])
            self.give(on.SlotPassed(slot, self.incarnations[slot], end))

    def later(self, us: int = 1_000_000) -> list[do.Effect]:
        """Let time pass, then tick."""
        self.now_us += us
        effects = self.give(on.Ticked())
        self.read()
        return effects

    def returns(self, token: str, *items: object) -> None:
        """Let the running query of a token return records."""
        query = self.queries[token]
        self.give(on.RecordsRead(token, query.query_id, list(items), 100))  # type: ignore[arg-type]

    def ends(self, token: str) -> None:
        """Let the running query of a token end with OK."""
        self.give(on.QueryEnded(token, self.queries.pop(token).query_id))

    def open_stream(self, *tokens: str) -> None:
        """Own every slot and open a stream whose initial query returns these tokens."""
        self.own(*range(SLOTS))
        self.returns(ROOT_TOKEN, self.children(*tokens, start_us=START_US))
        self.ends(ROOT_TOKEN)
        self.read()

    # -- looking

    def bodies(self, kind: type) -> list[object]:
        """Return every committed progress body of a kind, slot by slot."""
        return [
            record.body
            for records in self.log.slots.values()
            for record in records
            if record is not None and isinstance(record.body, kind)
        ]

    def last_snapshot(self, token: str) -> SlotProgress:
        """Return the newest committed snapshot of a token's slot."""
        records = self.log.slots[slot_of(token, SLOTS)]
        found = [r.body for r in records if r is not None and isinstance(r.body, SlotProgress)]
        return found[-1]

    # -- carrying out

    def _carry_out(self, effect: do.Effect) -> on.Event | None:
        match effect:
            case do.RecoverSlot():
                fence = self.log.fence.get(effect.slot)
                self.positions[effect.slot] = fence or 0
                self.incarnations[effect.slot] = effect.incarnation
                return on.SlotRecoveryBegun(
                    effect.slot, effect.incarnation,
                    from_beginning=fence is None, end_offset=len(self.log.slots[effect.slot]),
                )  # fmt: skip
            case do.FindStreamStart():
                for record in self.log.slots[slot_of(ROOT_TOKEN, SLOTS)]:
                    if record is not None and isinstance(record.body, StreamStarted):
                        return on.StreamStartFound(record)
            case do.StartQuery():
                self.queries[effect.token] = effect
            case do.StopQuery():
                del self.queries[effect.token]
            case do.BeginTransaction():
                self._staged, self._staged_data, self._flushed = [], [], 0
            case do.PublishRecords():
                self._staged_data += [
                    (effect.slot, message)
                    for record in effect.records
                    for message in record.messages
                ]
            case do.PublishProgress():
                self._staged.append((effect.slot, effect.author_slot, effect.record))
            case do.AwaitDelivery():
                return self._deliver()
            case do.SendOffsets():
                self._offsets = effect.offsets
            case do.CommitTransaction():
                outcome, self.outcome = self.outcome, None
                if outcome is None or self.commits_in_silence:
                    self._commit()
                if self.answers_commits:
                    return outcome or on.TransactionCommitted()
            case do.AbortTransaction():
                return on.TransactionAborted("asked for")
            case do.Stop():
                self.stopped.append(effect)
            case _:
                pass
        return None

    def _deliver(self) -> on.Delivered:
        written: dict[int, list[TopicOffset]] = {}
        for index, (slot, message) in enumerate(self._staged_data):
            offset = len(self.log.data) + index
            written.setdefault(slot, []).append(TopicOffset(message.topic, 0, offset))
        snapshots = {}
        ends = {slot: len(records) for slot, records in self.log.slots.items()}
        for slot, author, record in self._staged:
            offset = ends[slot]
            ends[slot] += 1
            if author is not None:
                written.setdefault(author, []).append(TopicOffset("bank-progress", slot, offset))
            elif isinstance(record.body, SlotProgress):
                snapshots[slot] = offset
        last = {
            slot: tuple({(o.topic, o.topic_partition): o for o in offsets}.values())
            for slot, offsets in written.items()
        }
        return on.Delivered(last, snapshots)

    def _commit(self) -> None:
        for slot, _, record in self._staged:
            self.log.slots[slot].append(record)
        for slot in {slot for slot, _, _ in self._staged}:
            self.log.slots[slot].append(None)  # the transaction's control record
        self.log.data += [message for _, message in self._staged_data]
        self.log.fence.update(self._offsets)


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.fixture
def bench(log: Log) -> Bench:
    """A worker that owns nothing yet."""
    return Bench(log)


@pytest.fixture
def make_bench(log: Log) -> Callable[..., Bench]:
    """Further workers on the same log."""
    return lambda **options: Bench(log, **options)
