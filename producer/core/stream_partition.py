"""One stream partition of a slot: its read and published positions, and its queries' starts.

Two positions matter. *Published* is the position that the log proves: the watermark, the boundary
transactions and the totals in the last committed snapshot. *Read* is ahead of it by the pending
records.  A committed transaction moves its records from pending to published together, so an abort
changes nothing here.  After a failure the next query continues at the read position; only the
published one survives the process.

A query starts at max(exact start, watermark), both inclusive, so it repeats its boundary instant:
records that the position at its start covers are dropped, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.lineage.errors import stop_text
from tidegate.producer.core.file_position import position_of
from tidegate.producer.core.lifecycle import (
    PARTITION_TRANSITIONS,
    PartitionChange,
    PartitionState,
    transition,
)
from tidegate.producer.core.position import (
    Item,
    MoveIns,
    Position,
    lies_past,
    waits_for_move_ins,
)
from tidegate.producer.core.publication import ParkedKeys, Publication, counted
from tidegate.producer.errors import SourceOrderBroken
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    FilesClosedRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.errors import InvariantViolation, TidegateError, invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    PROGRESS_VERSION,
    ChecksumKind,
    ChildPartition,
    TokenMove,
    TokenSnapshot,
    TopicTotals,
)
from tidegate.schemas.topics import ROOT_TOKEN

RETRY_DELAY_MIN_US = 100_000
RETRY_DELAY_MAX_US = 30_000_000

_WAITING = (PartitionState.QUEUED, PartitionState.PAUSED, PartitionState.HELD)


@dataclass(slots=True)
class _Query:
    query_id: int
    resumed_at: Position
    brought_data: bool = False
    children: dict[str, ChildPartition] = field(default_factory=dict)
    children_start_ns: int = 0


class StreamPartition:
    """One token, from its first announcement to its committed marker; states: `core.lifecycle`.

    It starts with nothing read and, without `published`, with nothing published.
    """

    def __init__(
        self,
        child: ChildPartition,
        *,
        heard: tuple[str, ...] = (),
        published: Position | None = None,
        totals: tuple[TopicTotals, ...] = (),
        filtered: int = 0,
        parked: ParkedKeys | None = None,
        number: int = -1,
        checksums: ChecksumKind = ChecksumKind.XXHASH_64,
    ) -> None:
        self.child = child
        self.heard = set(heard)
        self.published = published or position_of(child.token, child.start_ns // NS_PER_US - 1)
        self.totals = {entry.topic: entry for entry in totals}
        self.filtered = filtered
        """Number of changes left out up to the published position."""
        self.published_parked = parked or ParkedKeys()
        """The parked keys at the published position."""
        self.parked = self.published_parked
        """The parked keys at the read position."""
        self.number = number
        """Its number in the slot's heartbeats; -1 before it has one."""
        self.checksums = checksums
        self.description = 0
        """Grows with every change of other values than its progress."""
        self.read = self.published
        self.pending: list[PublishableRecord] = []
        self.pending_bytes = 0
        self.move_ins = MoveIns()
        self.attempts = 0
        self.retry_at_us = 0
        self.stopped_by: TidegateError | None = None
        """The error that stopped it; None except in the state STOPPED."""
        self._query: _Query | None = None
        self._finish: tuple[int, tuple[ChildPartition, ...]] | None = None
        self._started: list[ChildPartition] = []
        self._new_waits: list[tuple[str, int]] = []
        self._changed: dict[str, StreamPartition] | None = None
        self.state = PartitionState.CREATED
        if self.heard.issuperset(child.parents):
            self._move(PartitionChange.ANNOUNCED_BY_ALL)

    @classmethod
    def restore(cls, snapshot: TokenSnapshot) -> StreamPartition:
        """Return the stream partition that a committed snapshot describes."""
        return cls(
            ChildPartition(snapshot.token, snapshot.parents, snapshot.start_ns),
            heard=snapshot.parents_heard,
            published=position_of(snapshot.token, snapshot.watermark_us, snapshot.boundary),
            totals=snapshot.totals,
            filtered=snapshot.filtered,
            parked=ParkedKeys(frozenset(snapshot.parked_keys), snapshot.parked),
            number=snapshot.number,
            checksums=snapshot.checksums,
        )

    def report_changes(self, changed: dict[str, StreamPartition]) -> None:
        """Enter this stream partition into `changed` now and after each of its changes."""
        self._changed = changed
        self._report_change()

    def _report_change(self) -> None:
        if self._changed is not None:
            self._changed[self.child.token] = self

    def _move(self, change: PartitionChange) -> None:
        token = self.child.token
        self.state = transition(PARTITION_TRANSITIONS, self.state, change, token=token)
        self._report_change()

    def announce(self, parent: str, parked_keys: tuple[int, ...] = ()) -> bool:
        """Record an announcement by a parent, with its parked keys; return whether it is new."""
        is_new = parent not in self.heard or not self.parked.keys.issuperset(parked_keys)
        self.heard.add(parent)
        self.parked = self.parked.inherit(parked_keys)
        self.published_parked = self.published_parked.inherit(parked_keys)
        self._report_change()
        is_complete = self.heard.issuperset(self.child.parents)
        if self.state is PartitionState.CREATED and is_complete:
            self._move(PartitionChange.ANNOUNCED_BY_ALL)
        return is_new

    @property
    def query_id(self) -> int | None:
        """The running query; None if no query runs."""
        return None if self._query is None else self._query.query_id

    @property
    def has_news(self) -> bool:
        """Whether a transaction would move the published position or finish it."""
        return self.read is not self.published or self._finish is not None

    # ------------------------------------------------------------ reading

    def start_query(self, query_id: int) -> int:
        """Record that a query starts; return its start timestamp in nanoseconds."""
        self._move(PartitionChange.QUERY_STARTED)
        self._query = _Query(query_id, self.read)
        return max(self.child.start_ns, self.read.watermark_us * NS_PER_US)

    def queue_query(self) -> None:
        """Wait until the query may start."""
        self._move(PartitionChange.QUERY_DUE)

    def set_aside(self, change: PartitionChange) -> int | None:
        """Change between waiting states; drop the query, if one runs, and return its id."""
        query_id, self._query = self.query_id, None
        self._move(change)
        return query_id

    def stop_query(self) -> int | None:
        """Drop the running query, or stop waiting for one; return its id, None if none runs."""
        query_id = self.query_id
        self._query = None
        if self.state is PartitionState.RUNNING:
            self._move(PartitionChange.QUERY_STOPPED)
        elif self.state in _WAITING and query_id is None:
            self._move(PartitionChange.WITHDRAWN)
        return query_id

    def add_items(
        self, items: Iterable[Item], size_bytes: int, *, end_ns: int | None = None
    ) -> bool:
        """Add the query's output; return whether the query can be stopped.

        It can be stopped at the proved end, and where the following items wait for other stream
        partitions (`MoveIns`): these items are read again later.  An item past `end_ns` is not
        added: it proves that all items before it were returned.  A query's end proves nothing,
        because a query may end early; nor does a clock.  Children before such an item start within
        the stream: they are announced when the query ends.  Raises InitialQueryChange,
        SourceOrderBroken and TooManyParkedKeys; the items before the faulty one were added.
        """
        query = self._query
        if query is None:
            raise InvariantViolation("records without a running query", token=self.child.token)
        self.pending_bytes += size_bytes
        self._report_change()
        for item in items:
            if self.move_ins.waits_for and waits_for_move_ins(item, self.move_ins.at_us):
                self._move(PartitionChange.HELD)
                return True
            if end_ns is not None and lies_past(item, end_ns):
                if query.children:
                    continue  # the query ends by itself, and may still return their siblings
                self._finish_at(end_ns)
                return True
            match item:
                case PublishableRecord():
                    if not self._is_repeated(item, query):
                        self._add_record(item)
                        query.brought_data = True
                case HeartbeatRecord():
                    self._advance(self.read.with_heartbeat(item.timestamp_ns // NS_PER_US))
                case ChildPartitionsRecord():
                    query.children.update({child.token: child for child in item.children})
                    query.children_start_ns = item.start_ns
                case PartitionStartRecord():
                    self._add_start(item, query)
                case PartitionEventRecord():
                    self._add_move(item)
                case FilesClosedRecord():
                    self._advance(self.read.with_closed(item))
                case PartitionEndRecord():
                    self._finish_at(item.end_ns)
                    return True
        return False

    def _is_repeated(self, record: PublishableRecord, query: _Query) -> bool:
        """Whether a record repeats the inclusive start; a later commit time ends the repetition."""
        time_moved_on = record.commit_timestamp_us <= self.read.watermark_us
        return query.resumed_at.covers(record) and not (query.brought_data and time_moved_on)

    def _add_record(self, record: PublishableRecord) -> None:
        if self.read.covers(record):
            raise SourceOrderBroken(
                "the source returned a record behind what it had returned before",
                token=self.child.token,
                commit_timestamp_us=record.commit_timestamp_us,
                server_transaction_id=record.server_transaction_id,
                record_sequence=record.record_sequence,
                watermark_us=self.read.watermark_us,
            )
        if record.parked or self.parked.keys:
            record, self.parked = self.parked.divert(record, token=self.child.token)
        self.pending.append(record)
        self._advance(self.read.with_record(record))

    def _add_start(self, start: PartitionStartRecord, query: _Query) -> None:
        """Add stream partitions to announce while this one goes on."""
        token = self.child.token
        if token == ROOT_TOKEN:
            children = [ChildPartition(name, (), start.start_ns) for name in start.tokens]
            query.children.update({child.token: child for child in children})
            query.children_start_ns = start.start_ns
        elif not self.read.covers_start(start):
            self._started += [
                ChildPartition(name, (token,), start.start_ns) for name in start.tokens
            ]
            self._advance(self.read.with_start(start))

    def _add_move(self, event: PartitionEventRecord) -> None:
        at_us = event.commit_timestamp_ns // NS_PER_US
        if at_us > self.read.watermark_us:
            sources = [source for source in event.sources if source != self.child.token]
            if sources:
                self._new_waits += self.move_ins.add(at_us, sources)
            self._advance(self.read.with_move(event))

    def take_waits(self) -> list[tuple[str, int]]:
        """Return (source, time) of move-ins since the last call."""
        waits, self._new_waits = self._new_waits, []
        return waits

    def source_published(self, source: str, at_us: int) -> None:
        """Continue if this was the last source to wait for."""
        if self.move_ins.publish(source, at_us) and self.state is PartitionState.HELD:
            self._move(PartitionChange.SOURCES_PUBLISHED)

    def _advance(self, position: Position) -> None:
        """Advance the read position; only a later position counts as progress of the query."""
        if position is not self.read:
            self.read = position
            self.attempts = 0

    def end_query(self, now_us: int, *, had_end: bool = False) -> bool:
        """End a query that the service ended with OK; return whether its end was expected.

        The children prove the finish.  Without them the query is retried as after a failure; but a
        query with an end (`had_end`) that returned items is followed by the next one at once.
        """
        query = self._query
        if query is not None and query.children:
            self._finish_at(query.children_start_ns, *query.children.values())
            self._query = None
            return True
        is_next_due = had_end and query is not None and self.read is not query.resumed_at
        self.fail_query(now_us)
        if is_next_due:
            self.delay_query(now_us)
        return is_next_due

    def _finish_at(self, end_ns: int, *children: ChildPartition) -> None:
        self._move(PartitionChange.END_PROVED)
        self._finish = (end_ns, children)

    def fail_query(self, now_us: int, *, asked_us: int = 0) -> None:
        """Schedule the next attempt, each time later, not before `asked_us`; spread by token."""
        self._move(PartitionChange.QUERY_STOPPED)
        self._query = None
        delay_us = min(RETRY_DELAY_MIN_US << min(self.attempts, 20), RETRY_DELAY_MAX_US)
        spread = sum(self.child.token.encode()) % 100
        delay_us = max(delay_us - delay_us * spread // 400, asked_us + asked_us * spread // 400)
        self.delay_query(now_us + delay_us)
        self.attempts += 1

    def delay_query(self, until_us: int) -> None:
        """Start no query before a time."""
        self.retry_at_us = until_us
        self._report_change()

    def refuse_query(self, error: TidegateError) -> None:
        """Stop permanently: the read records are published, and nothing more is read."""
        self._move(PartitionChange.REFUSED)
        self._query = None
        self.stopped_by = error

    def pass_gap(self, until_us: int) -> None:
        """Continue at `until_us`; earlier changes that were not published are lost.

        Only while nothing is read or pending.
        """
        is_idle = self._query is None and self._finish is None and self.read is self.published
        invariant(is_idle, "a gap was passed while changes are read", token=self.child.token)
        is_behind = self.published.watermark_us < until_us - 1
        invariant(is_behind, "a gap ends before the position", token=self.child.token)
        self._advance(Position(until_us - 1))
        self._report_change()

    # ------------------------------------------------------------ publishing

    def publication(self) -> Publication:
        """Return all records that are not published; nothing changes until `confirm`."""
        totals = {**self.totals, **counted(self.pending, self.totals, self.checksums)}
        filtered = self.filtered + sum(record.filtered for record in self.pending)
        return Publication(
            tuple(self.pending), self.pending_bytes, self.read, totals, self._finish, self.parked,
            tuple(self._started), filtered,
        )  # fmt: skip

    def parks_more(self, publication: Publication) -> bool:
        """Whether a publication parks keys that were not parked before."""
        return publication.parked.keys is not self.published_parked.keys

    def put_back(self, keys: frozenset[int]) -> bool:
        """Remove parked keys whose changes were put back; return whether one was parked."""
        before = self.parked
        self.parked = self.parked.without(keys)
        self.published_parked = self.published_parked.without(keys)
        self._report_change()
        return self.parked is not before

    def drop_bytes(self) -> int:
        """Stop counting the bytes of read records; return them.  Only while nothing is pending."""
        invariant(not self.pending, "bytes dropped with records pending", token=self.child.token)
        size_bytes, self.pending_bytes = self.pending_bytes, 0
        self._report_change()
        return size_bytes

    def confirm(self, publication: Publication) -> int:
        """Apply a committed publication; return the bytes that it releases."""
        del self.pending[: len(publication.records)]
        del self._started[: len(publication.started)]
        self.pending_bytes -= publication.size_bytes
        if self.read is publication.position:
            self.read = self.published = publication.position
        else:
            self.published = publication.position
        self.totals, self.filtered = publication.totals, publication.filtered
        self.published_parked = publication.parked
        self._report_change()
        if publication.finish is not None:
            self._move(PartitionChange.MARKER_COMMITTED)
        # Repeats that were read during the transaction: no other commit would release them.
        repeated_bytes = 0 if self.has_news else self.drop_bytes()
        return publication.size_bytes + repeated_bytes

    def snapshot(
        self, publication: Publication | None = None, *, version: int = PROGRESS_VERSION
    ) -> TokenSnapshot:
        """Return the published state, or the state once `publication` is committed."""
        position = self.published if publication is None else publication.position
        totals = self.totals if publication is None else publication.totals
        parked = self.published_parked if publication is None else publication.parked
        return TokenSnapshot(
            token=self.child.token,
            start_ns=self.child.start_ns,
            parents=self.child.parents,
            parents_heard=tuple(sorted(self.heard)),
            watermark_us=position.watermark_us,
            boundary=tuple(sorted(position.boundary.items())),
            totals=tuple(totals[topic] for topic in sorted(totals)),
            filtered=self.filtered if publication is None else publication.filtered,
            parked=parked.changes,
            number=self.number if version > 1 else -1,
            checksums=self.checksums,
            stopped=None if self.stopped_by is None or version == 1 else stop_text(self.stopped_by),
            parked_keys=tuple(sorted(parked.keys)),
        )

    def move(self, publication: Publication) -> TokenMove:
        """Return the changes by a committed `publication`; only for a token with a description."""
        totals, before = publication.totals, self.totals
        return TokenMove(
            number=self.number,
            watermark_us=publication.position.watermark_us,
            boundary=tuple(sorted(publication.position.boundary.items())),
            totals=tuple(
                totals[topic] for topic in sorted(totals) if totals[topic] is not before.get(topic)
            ),
            filtered=publication.filtered,
            parked=publication.parked.changes,
        )

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the positions contradict each other."""
        token = self.child.token
        floor_us = self.child.start_ns // NS_PER_US - 1
        invariant(
            self.published.watermark_us >= floor_us,
            "published position before the start",
            token=token,
        )
        invariant(
            self.read.watermark_us >= self.published.watermark_us,
            "read position behind the published one",
            token=token,
        )
        invariant(self.pending_bytes >= 0, "pending bytes are negative", token=token)
        invariant(
            self.published_parked.keys <= self.parked.keys,
            "published parked keys that were not read",
            token=token,
        )
        has_finish = self._finish is not None
        is_finished = self.state is PartitionState.FINISHED
        invariant(has_finish == is_finished, "state does not match the proved end", token=token)
        is_stopped = self.state is PartitionState.STOPPED
        has_cause = self.stopped_by is not None
        invariant(has_cause == is_stopped, "state does not match the error", token=token)
        is_running = self.state is PartitionState.RUNNING
        has_query = self._query is not None
        invariant(has_query or not is_running, "state RUNNING without a query", token=token)
        is_held = self.state is PartitionState.HELD
        has_cause = bool(self.move_ins.waits_for)
        invariant(has_cause or not is_held, "state HELD without a cause", token=token)
        is_known = not self._started or self.has_news
        invariant(is_known, "a started stream partition is never announced", token=token)
        times = [record.commit_timestamp_us for record in self.pending]
        invariant(times == sorted(times), "pending records out of order", token=token)
