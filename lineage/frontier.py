"""The frontier: every slot's view, and the watermark that follows from them.

    watermark = the minimum over all stream partitions of all slots' views

It exists once the stream is known and each of its slots has a snapshot in effect.  The frontier
folds the progress topic, read from its beginning, in any interleaving of slots; the snapshots in
effect follow from the offsets that the reader has reached, so the same records and offsets always
give the same frontier.  `docs/protocol.md`, 6.5, has the theory and the proof that the minimum is
exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.lineage.errors import MixedEpochs, ProtocolError
from tidegate.lineage.slot_view import SlotMark, SlotView
from tidegate.lineage.snapshot_queue import ENTRIES_WAITING_MAX, HasReached, Slowest
from tidegate.lineage.subscription import Subscribed
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    DataTopic,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    StreamStarted,
    TableAdded,
)

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
    """A time up to which the reader has consumed everything (commit timestamp <= `us`)."""

    us: int
    slowest: str | None
    """The token with the lowest watermark; None when the bounded stream has ended."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """The part of `StreamStarted` that the reader needs."""

    name: str
    slots: int
    end_ns: int | None
    key_schema_ids: dict[str, int]
    """The key schemas of the data topics, including later tables."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Kafka's ids of the recorded data topics; empty in checkpoints of older programs."""


@dataclass(frozen=True, slots=True)
class FrontierMark:
    """How far a frontier was at one moment."""

    stream: tuple[str | None, int, int]
    """The epoch, and the numbers of topics that had a key schema and an id."""
    slots: Mapping[int, SlotMark]


class Frontier:
    """A reader's view of the progress topic; only `fold` and `apply` change it."""

    def __init__(self, subscription: Subscribed) -> None:
        """Start without records."""
        self._subscription = subscription
        self.epoch: str | None = None
        self._stream: _Stream | None = None
        self._slots: dict[int, SlotView] = {}
        self.workers: dict[int, str] = {}
        """The worker that wrote the newest heartbeat of each slot; for information only.

        `items_since` leaves it out.
        """

    @property
    def finished_tokens(self) -> int:
        """Number of completion markers read so far."""
        return sum(view.finished_tokens for view in self._slots.values())

    @property
    def snapshots_waiting(self) -> int:
        """Number of snapshots that were read and are not in effect."""
        return sum(view.snapshots_waiting for view in self._slots.values())

    @property
    def gaps(self) -> tuple[PartitionGap, ...]:
        """The accepted gaps read so far, by time.

        No snapshot in effect passes a gap that is missing here.
        """
        gaps = (gap for view in self._slots.values() for gap in view.gaps.values())
        return tuple(sorted(gaps, key=lambda gap: (gap.from_us, gap.token)))

    def view(self, slot: int) -> SlotView | None:
        """Return the view of a slot; None before its first record.  Read only."""
        return self._slots.get(slot)

    def key_schema_id(self, topic: str) -> int | None:
        """The key schema that the epoch has fixed for a topic, if it names the topic."""
        return None if self._stream is None else self._stream.key_schema_ids.get(topic)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's id of each recorded data topic whose id is known."""
        return {} if self._stream is None else self._stream.topic_ids

    def fold(self, rows: Iterable[ProgressRow], *, reached: EndOffsets) -> list[ProgressRow]:
        """Fold records, in any order, with the offsets that the reader has reached.

        Returns the records by slot and offset.

        `rows` holds, for each slot, all records that count between the previous and the present
        offset.  Raises MixedEpochs, ProtocolError where the records contradict the protocol, and
        ConfigError for a stream whose data topics have other names than the subscription's.
        """
        ordered = sorted(rows, key=lambda row: (row.slot, row.offset))
        for row in ordered:
            self._fold_one(row)
        self._check_slots(reached)
        has_reached = self._reached_test(reached)
        slots = len(self._slots) if self._stream is None else self._stream.slots
        for view in self._slots.values():
            view.settle(has_reached, entries_max=ENTRIES_WAITING_MAX // max(slots, 1))
        return ordered

    def watermark(self) -> Watermark | None:
        """The watermark, or None while it is unknown.

        Raises ProtocolError if an unbounded stream has no stream partition left.
        """
        if self._stream is None:
            return None
        views = [self._slots.get(slot) for slot in range(self._stream.slots)]
        if any(view is None or view.current is None for view in views):
            return None
        candidates = [view.slowest() for view in views if view is not None]
        slowest = min(
            (candidate for candidate in candidates if candidate is not None), default=None
        )
        if slowest is not None:
            return Watermark(slowest.watermark_us, slowest.token)
        if self._stream.end_ns is None:
            raise ProtocolError(
                "an unbounded stream has no stream partition left", stream=self._stream.name
            )
        return Watermark(self._stream.end_ns // NS_PER_US, None)

    def slowest_of_slots(self) -> list[tuple[int, Slowest]]:
        """Return each slot with its slowest stream partition, the lowest watermark first."""
        slots = ((slot, view.slowest()) for slot, view in self._slots.items())
        moving = [(slot, slowest) for slot, slowest in slots if slowest is not None]
        return sorted(moving, key=lambda entry: (entry[1], entry[0]))

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the frontier contradicts itself."""
        for slot, view in self._slots.items():
            invariant(slot == view.slot, "a slot's view is stored under another slot", slot=slot)
            view.check_invariants()

    def mark(self) -> FrontierMark:
        """Return how far the frontier is now."""
        slots = {number: view.mark() for number, view in self._slots.items()}
        return FrontierMark(self._stream_mark(), slots)

    def items_since(self, mark: FrontierMark | None) -> Iterator[list[Any]]:
        """Yield plain data for `apply`, with all that has changed since a mark.

        None is the mark of a frontier without records.
        """
        marked = (None, -1, -1) if mark is None else mark.stream
        if marked != self._stream_mark():
            stream = None if self._stream is None else asdict(self._stream)
            yield ["stream", self.epoch, stream]
        for number, view in sorted(self._slots.items()):
            for item in view.items_since(None if mark is None else mark.slots.get(number)):
                yield [number, *item]

    def apply(self, items: Iterable[list[Any]]) -> None:
        """Apply the items that `items_since` yielded, in their order."""
        for head, *rest in items:
            if head == "stream":
                self.epoch, stream = rest
                self._stream = None if stream is None else _Stream(**stream)
            else:
                self._slots.setdefault(head, SlotView(head)).apply(rest)

    @classmethod
    def of_format_1(cls, data: Mapping[str, Any], subscription: Subscribed) -> Frontier:
        """Restore a frontier from the format of programs that stored it as one file."""
        frontier = cls(subscription)
        frontier.epoch = data["epoch"]
        frontier._stream = None if data["stream"] is None else _Stream(**data["stream"])
        views = [SlotView.of_format_1(view) for view in data["slots"]]
        frontier._slots = {view.slot: view for view in views}
        return frontier

    def _stream_mark(self) -> tuple[str | None, int, int]:
        if self._stream is None:
            return self.epoch, -1, -1
        return self.epoch, len(self._stream.key_schema_ids), len(self._stream.topic_ids)

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
            self._start(row.record.body, row)
        elif isinstance(row.record.body, TableAdded):
            self._add_topic(row.record.body.topic)
        view.fold(row.record.body, offset=row.offset)
        # Other workers also write records into a slot: they announce, or accept gaps.
        if isinstance(row.record.body, SlotProgress | SlotChanges | SlotWatermark):
            self.workers[row.slot] = row.record.worker

    def _start(self, started: StreamStarted, row: ProgressRow) -> None:
        """Read the stream from the first chunk, and the topics from each."""
        if started.chunk == 0:  # other chunks have no filters
            self._subscription.require_stream(started)
        if self._stream is None:
            self._stream = _Stream(started.stream, started.slots, started.end_ns, {}, {})
        elif started.stream != self._stream.name:
            message = "the progress topic holds records of two streams"
            hint = "Find who writes to the topics of this prefix, and give each stream its own"
            streams, slot, offset = [self._stream.name, started.stream], row.slot, row.offset
            raise ProtocolError(message, hint=hint, streams=streams, slot=slot, offset=offset)
        for topic in started.topics:
            self._add_topic(topic)

    def _add_topic(self, topic: DataTopic) -> None:
        """Add a topic's key schema and id; the first record of a topic applies."""
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
