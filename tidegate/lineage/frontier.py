"""The frontier: every slot's view, and the watermark that follows from them.

    watermark = the minimum over all stream partitions of all slots' views

It exists once the stream is known and each of its slots has a snapshot in effect.  What is folded
is the progress topic, read from its beginning, in any interleaving of slots; what is in effect
follows from the offsets that the reader has reached, so the same records and offsets always give
the same frontier. The theory, and why the minimum is exact, is in `docs/protocol.md`, 6.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.lineage.errors import MixedEpochs, ProtocolError
from tidegate.lineage.slot_view import HasReached, SlotView
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import DataTopic, ProgressRecord, StreamStarted, TableAdded

if TYPE_CHECKING:
    from tidegate.lineage.subscription import Subscribed

__all__ = ["EndOffsets", "Frontier", "ProgressRow", "Watermark"]

EndOffsets = Mapping[str, Mapping[int, int]]
"""Topic -> topic partition -> the reader's next offset."""


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """A record of the progress topic, its slot and its offset."""

    slot: int
    offset: int
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything with a commit timestamp <= `us` is in what the reader has consumed."""

    us: int
    slowest: str | None
    """Token with the lowest watermark; None when the bounded stream has ended."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """The part of `StreamStarted` that the reader needs."""

    name: str
    slots: int
    end_ns: int | None
    key_schema_ids: dict[str, int]
    """Of later tables too."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Kafka's ids of the recorded data topics; empty in what older programs stored."""


class Frontier:
    """A reader's view of the progress topic; only `fold` changes it."""

    def __init__(self, subscription: Subscribed) -> None:
        """Start without records."""
        self._subscription = subscription
        self.epoch: str | None = None
        self._stream: _Stream | None = None
        self._slots: dict[int, SlotView] = {}

    @property
    def finished_tokens(self) -> int:
        """Completion markers read so far."""
        return sum(view.finished_tokens for view in self._slots.values())

    @property
    def snapshots_waiting(self) -> int:
        """Snapshots that were read and are not in effect."""
        return sum(view.snapshots_waiting for view in self._slots.values())

    def view(self, slot: int) -> SlotView | None:
        """Return what is known of a slot; None before its first record.  Read only."""
        return self._slots.get(slot)

    def key_schema_id(self, topic: str) -> int | None:
        """The key schema that the epoch has fixed for a topic, if it names the topic."""
        return None if self._stream is None else self._stream.key_schema_ids.get(topic)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's id of each data topic that the epoch has recorded, where it is known."""
        return {} if self._stream is None else self._stream.topic_ids

    def fold(self, rows: Iterable[ProgressRow], *, reached: EndOffsets) -> None:
        """Take records, in any order, and the offsets that the reader has reached.

        `rows` holds, of each slot, all records that count between the former and the present
        offset. Raises MixedEpochs, or ProtocolError where the records contradict the protocol.
        """
        for row in sorted(rows, key=lambda row: (row.slot, row.offset)):
            self._fold_one(row)
        self._check_slots(reached)
        for view in self._slots.values():
            view.settle(self._reached_test(reached))

    def watermark(self) -> Watermark | None:
        """The watermark, or None while it cannot be known.

        Raises ProtocolError if an unbounded stream has no stream partition left.
        """
        if self._stream is None:
            return None
        views = [self._slots.get(slot) for slot in range(self._stream.slots)]
        if any(view is None or view.current is None for view in views):
            return None
        candidates = [view.slowest() for view in views if view is not None]
        slowest = min((one for one in candidates if one is not None), default=None)
        if slowest is not None:
            return Watermark(slowest.watermark_us, slowest.token)
        if self._stream.end_ns is None:
            message = "an unbounded stream has no stream partition left"
            raise ProtocolError(message, stream=self._stream.name)
        return Watermark(self._stream.end_ns // NS_PER_US, None)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the frontier contradicts itself."""
        for slot, view in self._slots.items():
            invariant(slot == view.slot, "a slot's view is stored under another slot", slot=slot)
            view.check_invariants()

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        stream = self._stream
        return {
            "epoch": self.epoch,
            "stream": None
            if stream is None
            else {
                "name": stream.name,
                "slots": stream.slots,
                "end_ns": stream.end_ns,
                "key_schema_ids": dict(stream.key_schema_ids),
                "topic_ids": dict(stream.topic_ids),
            },
            "slots": [view.snapshot() for _, view in sorted(self._slots.items())],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any], subscription: Subscribed) -> Frontier:
        """Rebuild what `snapshot` gave."""
        frontier = cls(subscription)
        frontier.epoch = data["epoch"]
        frontier._stream = None if data["stream"] is None else _Stream(**data["stream"])
        views = [SlotView.restore(view) for view in data["slots"]]
        frontier._slots = {view.slot: view for view in views}
        return frontier

    def _fold_one(self, row: ProgressRow) -> None:
        view = self._slots.setdefault(row.slot, SlotView(row.slot))
        if row.offset <= view.folded_through:
            return
        if self.epoch is None:
            self.epoch = row.record.epoch
        if row.record.epoch != self.epoch:
            message = "the progress topic holds records of two epochs"
            hint = "The stream was reset: start with a new output and a new checkpoint"
            epochs = sorted((self.epoch, row.record.epoch))
            raise MixedEpochs(message, hint=hint, epochs=epochs, slot=row.slot, offset=row.offset)
        if isinstance(row.record.body, StreamStarted):
            self._start(row.record.body)
        elif isinstance(row.record.body, TableAdded):
            self._add_table(row.record.body.topic)
        view.fold(row.record.body, offset=row.offset)

    def _start(self, started: StreamStarted) -> None:
        if self._stream is not None:
            if started.stream != self._stream.name:
                message = "the progress topic holds records of two streams"
                raise ProtocolError(message, streams=[self._stream.name, started.stream])
            return
        self._stream = _Stream(
            name=started.stream,
            slots=started.slots,
            end_ns=started.end_ns,
            key_schema_ids={t.topic: t.key_schema_id for t in started.topics if _is_fixed(t)},
            topic_ids={t.topic: t.topic_id for t in started.topics if t.topic_id},
        )

    def _add_table(self, topic: DataTopic) -> None:
        """Take a later table's key schema and topic; the first record of a topic counts."""
        if self._stream is not None and topic.topic_id:
            self._stream.topic_ids.setdefault(topic.topic, topic.topic_id)
        if self._stream is not None and _is_fixed(topic):
            self._stream.key_schema_ids.setdefault(topic.topic, topic.key_schema_id)

    def _check_slots(self, reached: EndOffsets) -> None:
        slots = len(reached.get(self._subscription.progress_topic, {}))
        if self._stream is not None and slots != self._stream.slots:
            message = "the progress topic's number of topic partitions is not the stream's slots"
            hint = "The number of slots never changes: restore the topic, or reset the stream"
            fields = {"topic_partitions": slots, "slots": self._stream.slots}
            raise ProtocolError(message, hint=hint, **fields)

    def _reached_test(self, reached: EndOffsets) -> HasReached:
        def has_reached(topic: str, topic_partition: int, offset: int) -> bool:
            if not self._subscription.includes(topic):
                return True
            return reached.get(topic, {}).get(topic_partition, 0) > offset

        return has_reached


def _is_fixed(topic: DataTopic) -> bool:
    return topic.key_schema_id > 0
