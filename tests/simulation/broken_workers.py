"""Workers that are broken on purpose: what they believe, read, write, commit and obey."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from tests.simulation.mutant import Mutants
from tidegate.lineage import slot_tokens
from tidegate.lineage.fleet_view import PublishedView
from tidegate.lineage.slot_view import SlotView
from tidegate.lineage.snapshot_queue import SnapshotQueue
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core import partition_index, stream_partition
from tidegate.producer.core.events import Now
from tidegate.producer.core.fleet import FleetAlignment
from tidegate.producer.core.group_watch import GroupWatch
from tidegate.producer.core.lifecycle import PartitionState, SlotPhase
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import _MOVABLE, PartitionIndex, QueryScheduler
from tidegate.producer.core.position import MoveIns, Position, lies_past
from tidegate.producer.core.progress_writer import HeartbeatWriter, ProgressWriter
from tidegate.producer.core.queries import Queries, StallWatch
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.sole_workers import GapAcceptingWorker
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.stream_topics import StreamTopics
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver import effect_runner, loop
from tidegate.producer.driver.byte_budget import BudgetLine, _Account
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.errors import PositionExpired
from tidegate.producer.memory import publisher
from tidegate.producer.memory.broker import Log, Outcome
from tidegate.producer.memory.membership import MemoryProgressFollower
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns
from tidegate.schemas.progress import ChecksumKind, PartitionAnnounced, SlotChanges, WorkerDrain
from tidegate.schemas.progress_codec import encode_key
from tidegate.schemas.topics import slot_of

BROKEN = Mutants()


_abort, _announce, _begin = TransactionCycle.abort, Slot._announce, TransactionCycle.begin
_deliver, _drop_slot = TransactionCycle.deliver, Worker._drop_slot


@BROKEN.add("ack early", "nothing_lost", (TransactionCycle, "abort"))
def _(self, now_us):
    """Take what was produced for published, whether it was committed or not."""
    if self.open is not None:
        for number, by_token in self.open.publications.items():
            slot = self._slots.get(number)
            for token, publication in by_token.items():
                if slot is not None and token in slot.tokens and publication.finish is None:
                    slot.tokens[token].confirm(publication)
    _abort(self, now_us)


@BROKEN.add("forget one parent of a merge", "lineage", (Slot, "_announce"))
def _(self, announced):
    child = replace(announced.child, parents=announced.child.parents[:1])
    if announced.parent in child.parents or not child.parents:
        _announce(self, replace(announced, child=child))


@BROKEN.add("a child started before the commit", "lineage", (TransactionCycle, "begin"))
def _(self, due, writer):
    """Count one's own announcements at once, before they are committed."""
    effects = _begin(self, due, writer)
    for effect in effects:
        if isinstance(effect, do.PublishProgress):
            body, slot = effect.record.body, self._slots.get(effect.slot)
            if isinstance(body, PartitionAnnounced) and slot is not None:
                slot._announce(body)
    return effects


BROKEN.add("a heartbeat taken at T", "watermark", (Position, "with_heartbeat"))(
    lambda self, timestamp_us: Position(timestamp_us) if timestamp_us > self.watermark_us else self
)


_start_query = StreamPartition.start_query


@BROKEN.add("boundary instant skipped", "nothing_lost", (StreamPartition, "start_query"))
def _(self, query_id):
    start_ns = _start_query(self, query_id)
    return start_ns + 2 * NS_PER_US if self.read.boundary else start_ns


@BROKEN.add("an unproven finish believed", "gaps", (StreamPartition, "end_query"))
def _(self, now_us, *, had_end=False):
    query, self._query = self._query, None
    if query is None:
        return False
    end_ns = query.children_start_ns or self.read.watermark_us * NS_PER_US
    self._finish_at(end_ns, *query.children.values())
    return True


@BROKEN.add("a fence with no offset in it", "single_writer", (TransactionCycle, "deliver"))
def _(self, *args):
    effects = _deliver(self, *args)
    return [do.SendOffsets(()) if isinstance(e, do.SendOffsets) else e for e in effects]


BROKEN.add(
    "an uncommitted tail not waited for on takeover", "single_writer", (Log, "uncommitted_end")
)(Log.stable_end)


@BROKEN.add(
    "an abort after an unanswered commit believed",
    "single_writer",
    (TransactionCycle, "is_commit_unanswered"),
)
@property
def _(self):
    return False


@BROKEN.add(
    "a commit of unknown outcome published again", "nothing_twice", (Worker, "_on_unknown_outcome")
)
def _(self):
    self._cycle.abort(0)
    return [do.RestartProducer()]


BROKEN.add("reads of a former incarnation believed", "soundness", (Worker, "_current"))(
    lambda self, number, incarnation: self.slots.get(number)
)
BROKEN.add("bytes of a lost slot not given back", "bounded_memory", (Worker, "_drop_slot"))(
    lambda self, number: [
        e for e in _drop_slot(self, number) if not isinstance(e, do.ReleaseBudget)
    ]
)


@BROKEN.add(
    "an abort followed at once by the next attempt", "liveness", (TransactionCycle, "abort")
)
def _(self, now_us):
    _abort(self, now_us)
    self._not_before_us = 0


BROKEN.add("a worker that stays out of its group", "liveness", (GroupWatch, "_is_absent_too_long"))(
    lambda self, group, now_us: False
)


@BROKEN.add("an announcement that is read again believed", "nothing_twice", (Slot, "advance_to"))
def _(self, position):
    if self.phase is not SlotPhase.ASSIGNED:
        self.position = max(self.position, position)


_draft, _own = HeartbeatWriter.draft, Slot.own
_restore = StreamPartition.restore.__func__
_slowest = HeartbeatWriter._slowest


@BROKEN.add("a vector without the last record", "watermark", (HeartbeatWriter, "draft"))
def _(self, tokens, publications, before, after):
    vector = {place: last - 1 for place, last in after.vector.items()}
    return _draft(self, tokens, publications, before, replace(after, vector=vector))


@BROKEN.add("a vector that is not taken over", "vectors", (Slot, "own"))
def _(self, epoch):
    _own(self, epoch)
    self.vector = {}


@BROKEN.add("a snapshot without the tokens that wait", "soundness", (HeartbeatWriter, "draft"))
def _(self, tokens, publications, before, after):
    kept = {t: one for t, one in tokens.items() if one.state is not PartitionState.CREATED}
    whole, self.undescribed = self.undescribed, self.undescribed & kept.keys()
    shown = {token: one for token, one in publications.items() if token in kept}
    try:
        return _draft(self, kept, shown, before, after)
    finally:
        self.undescribed = whole


@BROKEN.add("a snapshot that includes one offset more", "liveness", (HeartbeatWriter, "draft"))
def _(self, tokens, publications, before, after):
    after = replace(after, includes=after.includes + 1)
    return _draft(self, tokens, publications, before, after)


BROKEN.add(
    "a fence's offset at changes whose chain began before it", "soundness", (Slot, "fence_offset")
)(lambda self, heartbeat, first_offset: min(first_offset, heartbeat.after.includes + 1))


@BROKEN.add("a chain that is taken to hold what was aborted", "chains", (HeartbeatWriter, "draft"))
def _(self, *args):
    heartbeat = _draft(self, *args)
    self.undescribed -= heartbeat.stated.keys()
    self._described |= heartbeat.stated.keys()
    return heartbeat


@BROKEN.add("changes that compaction removes from a chain", "soundness", (publisher, "encode_key"))
def _(body, version=2):
    """Let compaction keep the newest changes of a slot only."""
    return encode_key(replace(body, position=1) if isinstance(body, SlotChanges) else body, version)


@BROKEN.add("totals that go on with another checksum", "completeness", (StreamPartition, "restore"))
@classmethod
def _(cls, snapshot):
    return _restore(cls, replace(snapshot, checksums=ChecksumKind.XXHASH_64))


BROKEN.add(
    "a gate that takes changes for a whole vector", "watermark", (SnapshotQueue, "add_changes")
)(SnapshotQueue.add)


@BROKEN.add("a gate that follows changes across a gap", "views", (SlotView, "_add"))
def _(self, whole, body):
    """Take changes for a snapshot, whatever they follow."""
    newest = self._snapshots.newest
    if newest is None or whole.snapshot.revision > newest.revision:
        self._snapshots.add_changes(whole.snapshot, whole.vector)


_news, _report_change = PartitionIndex.news, StreamPartition._report_change
_add_items = StreamPartition.add_items


BROKEN.add("a silent query waited for without end", "liveness", (StallWatch, "stalled"))(
    lambda self: []
)


@BROKEN.add("a back-off that ends with any item", "query_pace", (StreamPartition, "add_items"))
def _(self, *args, **kwargs):
    self.attempts = 0
    return _add_items(self, *args, **kwargs)


@BROKEN.add(
    "a stopped stream partition that holds up its slot", "others_advance", (PartitionIndex, "news")
)
def _(self, slot):
    stopped = {slot_of(token, self._slots) for token in self.stopped}
    return {} if slot in stopped else _news(self, slot)


_read_slot = MemoryProgressFollower._read


@BROKEN.add(
    "a queued stream partition left out of the watermark",
    "watermark",
    (HeartbeatWriter, "_slowest"),
)
def _(self, tokens, publications):
    """Leave out what waits for a query, unless there is nothing else."""
    read = {t: p for t, p in tokens.items() if p.state is not PartitionState.QUEUED}
    if not read:
        return _slowest(self, tokens, publications)
    kept = list(self._by_watermark)
    found = _slowest(self, read, {t: p for t, p in publications.items() if t in read})
    self._by_watermark = kept
    return found


BROKEN.add("a query that keeps its place for good", "query_turns", (QueryScheduler, "_look"))(
    lambda self, now_us: None
)
BROKEN.add(
    "a drift that is compared with the own slowest only",
    "fleet_drift",
    (FleetAlignment, "_elsewhere_us"),
)(lambda self, current_at_us, now_us: None)
BROKEN.add(
    "a stopped stream partition that pauses those of other workers",
    "others_advance",
    (slot_tokens, "can_move"),
)(lambda _token: True)
BROKEN.add(
    "a stopped stream partition that pauses the others",
    "others_advance",
    (partition_index, "_MOVABLE"),
)(frozenset({*_MOVABLE, PartitionState.STOPPED}))


@BROKEN.add(
    "a view of the fleet that counts what is not committed",
    "fleet_views",
    (MemoryProgressFollower, "_read"),
)
def _(self, slot):
    log = self._broker.logs[self._topic, slot]
    with patch.object(log, "open", {}), ExitStack() as stack:
        for entry in log.entries:
            if entry.transaction is not None and entry.transaction.outcome is Outcome.OPEN:
                stack.enter_context(patch.object(entry.transaction, "outcome", Outcome.COMMITTED))
        _read_slot(self, slot)


_take = PartitionReader._take


BROKEN.add("a byte budget without shares", "bounded_memory", (BudgetLine, "_next"))(
    lambda self: self._line[0] if self._line else None
)


@BROKEN.add(
    "what becomes larger than it came held without waiting",
    "bounded_memory",
    (PartitionReader, "_take"),
)
async def _(self, size):
    if not self._held:
        return await _take(self, size)
    line = self._budget._line
    line.taken += size
    line._accounts.setdefault(self._token, _Account()).taken += size
    self._held += size
    return True


BROKEN.add(
    "effects of a failed transaction carried out",
    "nothing_twice",
    (EffectRunner, "_drop_transaction"),
)(lambda self: None)
BROKEN.add("intervals on the wall clock", "liveness", (effect_runner, "now_on"))(
    lambda clock: Now(clock.wall_us(), clock.wall_us())
)


@BROKEN.add("joined records in another order", "nothing_lost", (loop, "_joined_run"))
def _(run):
    items = [item for output in reversed(run) for item in output.items]
    size_bytes = sum(output.size_bytes for output in run)
    return on.RecordsRead(run[0].token, run[0].query_id, items, size_bytes)


@BROKEN.add("a time-out taken for a successor", "soundness", (EffectRunner, "_explain"))
def _(self, outcome):
    is_fenced = isinstance(outcome, on.ProducerFenced)
    return on.ProducerFenced(has_successor=True) if is_fenced else outcome


_fail, _handle_event, _open_table = Queries.fail, Worker._handle, StreamTopics.open


BROKEN.add("a topic that changed not noticed", "ground", (StreamTopics, "changes"))(
    lambda self, event, *, now_us: None
)


@BROKEN.add("an expired interval of the change stream skipped", "ground", (Queries, "fail"))
def _(self, partition, error, now_us):
    is_expired = isinstance(error, PositionExpired)
    lost_until = str(error.fields["lost_until"]) if is_expired else "unknown"
    if lost_until == "unknown":
        return _fail(self, partition, error, now_us)
    partition.read = Position(parse_rfc3339_ns(lost_until) // NS_PER_US)
    partition.fail_query(now_us)
    return []


BROKEN.add("a right that is lost while a worker runs not noticed", "ground", (Worker, "_handle"))(
    lambda self, event, now: (
        [] if isinstance(event, on.AccessDenied) else _handle_event(self, event, now)
    )
)
BROKEN.add("a later table published before it is recorded", "tables", (StreamTopics, "waited_for"))(
    lambda self, records: set()
)


@BROKEN.add(
    "a table that was dropped before the start not watched", "ground", (StreamTopics, "open")
)
def _(self, record):
    effects = _open_table(self, record)
    return [effect for effect in effects if not isinstance(effect, do.WatchTopic)]


_accept = GapAcceptingWorker._accept
_obey, _next_transaction = OperatorCommands.handle, Worker._next_transaction


BROKEN.add("a gap passed and not recorded", "nothing_lost", (ProgressWriter, "gap"))(
    lambda self, gap, *, slot: []
)


@BROKEN.add(
    "a gap accepted although the position has moved",
    "accepted_gaps",
    (GapAcceptingWorker, "_accept"),
)
def _(self, gaps):
    """Take the position as it is found, whatever was asked for."""
    tokens = {token: one for slot in self.slots.values() for token, one in slot.tokens.items()}
    moved = tuple(
        replace(
            gap,
            from_us=tokens[gap.token].published.watermark_us + 1,
            until_us=max(gap.until_us, tokens[gap.token].published.watermark_us + 2),
        )
        for gap in gaps
    )
    return _accept(self, moved)


@BROKEN.add("a pause that drops what was read", "pauses", (Worker, "_obey_pause"))
def _(self):
    if self._commands.paused_by is None or self._cycle.open is not None:
        return []
    owned = tuple(n for n, slot in self.slots.items() if slot.phase is SlotPhase.OWNED)
    effects = [effect for number in owned for effect in self._drop_slot(number)]
    return effects + self._on_assigned(owned)


@BROKEN.add("a restarted worker that forgets the pause", "pauses", (OperatorCommands, "may_read"))
@property
def _(self):
    return self._epoch is not None and self.paused_by is None


@BROKEN.add("a drained worker that obeys an old drain", "pauses", (OperatorCommands, "handle"))
def _(self, event):
    _obey(self, event)
    bodies = [record.body for record in event.records]
    named = [
        body for body in bodies if isinstance(body, WorkerDrain) and body.worker == self._worker
    ]
    self.is_drained = self.is_drained or bool(named)


@BROKEN.add(
    "a drained worker that leaves before it commits", "pauses", (Worker, "_next_transaction")
)
def _(self, now):
    leaving = [slot for slot in self.slots.values() if slot.is_leaving]
    return self._release(leaving) if leaving and self._draining else _next_transaction(self, now)


_add, _publication = MoveIns.add, StreamPartition.publication


BROKEN.add("only one of several sources is waited for", "key_order", (MoveIns, "add"))(
    lambda self, at_us, sources: _add(self, at_us, list(sources)[:1])
)
BROKEN.add(
    "a source that is not announced yet is taken for finished",
    "key_order",
    (PublishedView, "has_finished"),
)(lambda self, _token, _at_us: self._watermark_us is not None)
BROKEN.add("a move-out that its position does not hold", "liveness", (Position, "with_move"))(
    lambda self, event: self.through(event.commit_timestamp_ns // 1000 - 1)
)
BROKEN.add(
    "what has the time of a move-in does not wait for it",
    "key_order",
    (stream_partition, "waits_for_move_ins"),
)(lambda item, at_us: lies_past(item, at_us * 1000))
BROKEN.add("a start that is not announced", "gaps", (StreamPartition, "publication"))(
    lambda self: replace(_publication(self), started=())
)
