"""One stream partition in its owner's memory: what was read, what is published, where to go on.

Two positions matter.  *Published* is what the log proves: the watermark, the boundary transactions
and the totals as the last committed snapshot holds them.  *Read* is ahead of it by the pending
records.  Records move from pending to published whole, by one committed transaction, so an abort
changes nothing here.

The read position allows a failed query to go on where it broke off; the published one is all that
survives the process.  A query starts at max(exact start, watermark), both inclusive, so it repeats
its boundary instant: what the position at its start covers is dropped, and nothing else ever is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from tidegate.producer.messages import PublishableRecord
from tidegate.producer.spanner_records import ChildPartitionsRecord, HeartbeatRecord
from tidegate.schemas.errors import ProducerError, invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import CHECKSUM_MODULUS, order_key_checksum, sequence_pair
from tidegate.schemas.progress import ChildPartition, TokenSnapshot, TopicTotals

__all__ = ["PartitionState", "Position", "Publication", "StreamPartition"]

RETRY_DELAY_MIN_US = 100_000
RETRY_DELAY_MAX_US = 30_000_000


class PartitionState(Enum):
    """A stream partition's life in its slot; one whose marker is committed is in no slot."""

    CREATED = "announced by some of its parents"
    SCHEDULED = "announced by all of its parents, no query runs"
    RUNNING = "a query runs"
    FINISHED = "its end is proved, the completion marker is not committed yet"


@dataclass(frozen=True, slots=True)
class Position:
    """Everything with a commit timestamp <= `watermark_us`, and what `boundary` covers after it."""

    watermark_us: int
    boundary: dict[str, str] = field(default_factory=dict)
    """server transaction id -> highest record sequence; all at one commit time, watermark + 1."""

    def with_record(self, record: PublishableRecord) -> Position:
        """Return the position after one more record: others at its commit time may follow it."""
        watermark_us = record.commit_timestamp_us - 1
        kept = self.boundary if watermark_us == self.watermark_us else {}
        boundary = {**kept, record.server_transaction_id: record.record_sequence}
        return Position(watermark_us, boundary)

    def with_heartbeat(self, timestamp_us: int) -> Position:
        """Return the position after a heartbeat: the instant itself may still bring records."""
        return Position(timestamp_us - 1) if timestamp_us - 1 > self.watermark_us else self

    def covers(self, record: PublishableRecord) -> bool:
        """Tell whether a record is contained already."""
        if record.commit_timestamp_us != self.watermark_us + 1:
            return record.commit_timestamp_us <= self.watermark_us
        highest = self.boundary.get(record.server_transaction_id)
        return highest is not None and sequence_pair(record.record_sequence) <= sequence_pair(
            highest
        )


@dataclass(frozen=True, slots=True)
class Publication:
    """What one transaction takes from a stream partition, and what is true once it is committed."""

    records: tuple[PublishableRecord, ...]
    size_bytes: int
    position: Position
    totals: dict[str, TopicTotals]
    finish: tuple[int, tuple[ChildPartition, ...]] | None
    """(end, children) if this is the last transaction of the stream partition; nanoseconds."""


@dataclass(slots=True)
class _Query:
    query_id: int
    resumed_at: Position
    brought_data: bool = False
    children: dict[str, ChildPartition] = field(default_factory=dict)
    children_start_ns: int = 0


class StreamPartition:
    """See the module; one object per token, from its first announcement to its committed marker."""

    def __init__(
        self,
        child: ChildPartition,
        *,
        heard: tuple[str, ...] = (),
        published: Position | None = None,
        totals: tuple[TopicTotals, ...] = (),
    ) -> None:
        """Begin with nothing read; without `published`, nothing is published either."""
        self.child = child
        self.heard = set(heard)
        self.published = published or Position(child.start_ns // NS_PER_US - 1)
        self.totals = {entry.topic: entry for entry in totals}
        self.read = self.published
        self.pending: list[PublishableRecord] = []
        self.pending_bytes = 0
        self.attempts = 0
        self.retry_at_us = 0
        self._query: _Query | None = None
        self._finish: tuple[int, tuple[ChildPartition, ...]] | None = None

    @classmethod
    def restore(cls, snapshot: TokenSnapshot) -> StreamPartition:
        """Return the stream partition that a committed snapshot describes."""
        return cls(
            ChildPartition(snapshot.token, snapshot.parents, snapshot.start_ns),
            heard=snapshot.parents_heard,
            published=Position(snapshot.watermark_us, dict(snapshot.boundary)),
            totals=snapshot.totals,
        )

    # ------------------------------------------------------------ what it is

    @property
    def state(self) -> PartitionState:
        """Where it stands in its life."""
        if self._finish is not None:
            return PartitionState.FINISHED
        if self._query is not None:
            return PartitionState.RUNNING
        if self.heard.issuperset(self.child.parents):
            return PartitionState.SCHEDULED
        return PartitionState.CREATED

    @property
    def query_id(self) -> int | None:
        """The running query."""
        return None if self._query is None else self._query.query_id

    @property
    def has_news(self) -> bool:
        """Tell whether a transaction would move the published position or finish it."""
        return self.read is not self.published or self._finish is not None

    # ------------------------------------------------------------ reading

    def begin_query(self, query_id: int) -> int:
        """Note that a query begins; return where it starts, in nanoseconds."""
        invariant(self.state is PartitionState.SCHEDULED, "a query begins", token=self.child.token)
        self._query = _Query(query_id, self.read)
        return max(self.child.start_ns, self.read.watermark_us * NS_PER_US)

    def stop_query(self) -> int | None:
        """Forget the running query; return its id."""
        query_id = self.query_id
        self._query = None
        return query_id

    def take_in(
        self,
        items: list[PublishableRecord | HeartbeatRecord | ChildPartitionsRecord],
        size_bytes: int,
        *,
        end_ns: int | None = None,
    ) -> bool:
        """Add what the query returned; return whether it proves a bounded stream's end.

        What lies past `end_ns` is not taken: it is the proof that all before it was returned.  An
        ended query is none, as it may end early, and neither is a clock.  Raises ProducerError if
        the source broke its order.
        """
        query = self._query
        if query is None:
            message = "records arrived without a query"
            raise ProducerError(message, token=self.child.token)
        self.attempts = 0
        self.pending_bytes += size_bytes
        for item in items:
            if end_ns is not None and _lies_past(item, end_ns):
                self._finish = (end_ns, ())
                return True
            match item:
                case PublishableRecord():
                    if not self._is_repeated(item, query):
                        self._take_record(item)
                        query.brought_data = True
                case HeartbeatRecord():
                    self.read = self.read.with_heartbeat(item.timestamp_ns // NS_PER_US)
                case ChildPartitionsRecord():
                    query.children.update({child.token: child for child in item.children})
                    query.children_start_ns = item.start_ns
        return False

    def _is_repeated(self, record: PublishableRecord, query: _Query) -> bool:
        """Tell whether a record is the inclusive start's repetition; time moving on ends that."""
        time_moved_on = record.commit_timestamp_us <= self.read.watermark_us
        return query.resumed_at.covers(record) and not (query.brought_data and time_moved_on)

    def _take_record(self, record: PublishableRecord) -> None:
        if self.read.covers(record):
            message = "the source returned a record behind what it had returned before"
            raise ProducerError(
                message,
                token=self.child.token,
                commit_timestamp_us=record.commit_timestamp_us,
                server_transaction_id=record.server_transaction_id,
                record_sequence=record.record_sequence,
                watermark_us=self.read.watermark_us,
            )
        self.pending.append(record)
        self.read = self.read.with_record(record)

    def end_query(self) -> bool:
        """Take a query's end with OK; return whether it proves the stream partition finished.

        Proof are the children.  Without them the query is repeated.
        """
        query = self._query
        invariant(query, "a query ended that was not running", token=self.child.token)
        self._query = None
        if query is None or not query.children:
            return False
        self._finish = (query.children_start_ns, tuple(query.children.values()))
        return True

    def fail_query(self, now_us: int) -> None:
        """Schedule the next attempt, later each time; the delay is spread by the token."""
        self._query = None
        delay_us = min(RETRY_DELAY_MIN_US << min(self.attempts, 20), RETRY_DELAY_MAX_US)
        spread = sum(self.child.token.encode()) % 100
        self.retry_at_us = now_us + delay_us - delay_us * spread // 400
        self.attempts += 1

    # ------------------------------------------------------------ publishing

    def publication(self) -> Publication:
        """Return everything that waits; nothing changes until `confirm`."""
        totals = dict(self.totals)
        for record in self.pending:
            _count(record, totals)
        return Publication(tuple(self.pending), self.pending_bytes, self.read, totals, self._finish)

    def confirm(self, publication: Publication) -> None:
        """Take over what a committed transaction has published."""
        del self.pending[: len(publication.records)]
        self.pending_bytes -= publication.size_bytes
        if self.read is publication.position:
            self.read = self.published = publication.position
        else:
            self.published = publication.position
        self.totals = publication.totals

    def snapshot(self, publication: Publication | None = None) -> TokenSnapshot:
        """Return the snapshot as it is, or as it will be once `publication` is committed."""
        position = self.published if publication is None else publication.position
        totals = self.totals if publication is None else publication.totals
        return TokenSnapshot(
            token=self.child.token,
            start_ns=self.child.start_ns,
            parents=self.child.parents,
            parents_heard=tuple(sorted(self.heard)),
            watermark_us=position.watermark_us,
            boundary=tuple(sorted(position.boundary.items())),
            totals=tuple(totals[topic] for topic in sorted(totals)),
        )

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the positions contradict each other."""
        token = self.child.token
        floor_us = self.child.start_ns // NS_PER_US - 1
        invariant(
            self.published.watermark_us >= floor_us, "published before its start", token=token
        )
        invariant(
            self.read.watermark_us >= self.published.watermark_us,
            "read behind published",
            token=token,
        )
        invariant(self.pending or self.pending_bytes >= 0, "bytes without records", token=token)
        times = [record.commit_timestamp_us for record in self.pending]
        invariant(times == sorted(times), "pending records out of order", token=token)


def _lies_past(
    item: PublishableRecord | HeartbeatRecord | ChildPartitionsRecord, end_ns: int
) -> bool:
    """Tell whether nothing at or before `end_ns` (inclusive) can follow an item."""
    match item:
        case PublishableRecord():
            return item.commit_timestamp_us > end_ns // NS_PER_US
        case HeartbeatRecord():
            # The instant of a heartbeat may still bring records.
            return item.timestamp_ns // NS_PER_US > end_ns // NS_PER_US
        case ChildPartitionsRecord():
            return item.start_ns > end_ns


def _count(record: PublishableRecord, totals: dict[str, TopicTotals]) -> None:
    for topic in {message.topic for message in record.messages}:
        before = totals.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
        totals[topic] = replace(before, records=before.records + 1)
    for message in record.messages:
        before = totals[message.topic]
        totals[message.topic] = replace(
            before,
            mods=before.mods + 1,
            value_bytes=before.value_bytes + len(message.value),
            checksum=(before.checksum + order_key_checksum(message.order_key)) % CHECKSUM_MODULUS,
        )
