"""Workers that are broken on purpose: what they believe, what they write, how they commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core import effects as do
from tidegate.producer.core.group_watch import GroupWatch
from tidegate.producer.core.position import Position
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.transaction import TransactionPhase
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.core.worker import Worker
from tidegate.producer.memory.log import Log
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import PartitionAnnounced

__all__ = ["BROKEN_FLEETS"]

_abort = TransactionCycle.abort


def _confirm_at_abort(self: TransactionCycle, now_us: int) -> None:
    """Take what was produced for published, whether it was committed or not."""
    if self.open is not None:
        for number, by_token in self.open.publications.items():
            slot = self._slots.get(number)
            for token, publication in by_token.items():
                if slot is not None and token in slot.tokens and publication.finish is None:
                    slot.tokens[token].confirm(publication)
    _abort(self, now_us)


_announce = Slot._announce


def _announce_with_one_parent(self: Slot, announced: PartitionAnnounced) -> None:
    child = replace(announced.child, parents=announced.child.parents[:1])
    if announced.parent in child.parents or not child.parents:
        _announce(self, replace(announced, child=child))


_finish = ProgressWriter.finish


def _finish_without_marker(self: ProgressWriter, *args: Any, **kwargs: Any) -> list[do.Effect]:
    return _finish(self, *args, **kwargs)[:-1]


def _at_its_own_time(self: Position, record: Any) -> Position:
    at_us = record.commit_timestamp_us
    kept = self.boundary if at_us == self.watermark_us else {}
    return Position(at_us, {**kept, record.server_transaction_id: record.record_sequence})


def _covers_by_transaction(self: Position, record: Any) -> bool:
    """What `covers` would be with watermarks at the records' own times."""
    if record.commit_timestamp_us == self.watermark_us and self.boundary:
        highest = self.boundary.get(record.server_transaction_id)
        return highest is not None and record.record_sequence <= highest
    return record.commit_timestamp_us <= self.watermark_us


def _covers_without_boundary(self: Position, record: Any) -> bool:
    return record.commit_timestamp_us <= self.watermark_us


_start_query = StreamPartition.start_query


def _start_after_boundary(self: StreamPartition, query_id: int) -> int:
    start_ns = _start_query(self, query_id)
    return start_ns + 2 * NS_PER_US if self.read.boundary else start_ns


def _heartbeat_at_t(self: Position, timestamp_us: int) -> Position:
    return Position(timestamp_us) if timestamp_us > self.watermark_us else self


def _believe_any_end(self: StreamPartition, now_us: int, *, had_end: bool = False) -> bool:
    query, self._query = self._query, None
    if query is None:
        return False
    end_ns = query.children_start_ns or self.read.watermark_us * NS_PER_US
    self._finish_at(end_ns, *query.children.values())
    return True


_publication = StreamPartition.publication


def _publication_that_counts_at_once(self: StreamPartition) -> Any:
    publication = _publication(self)
    self.totals = publication.totals
    return publication


# ---------------------------------------------------------------- the transaction


_begin = TransactionCycle.begin


def _begin_and_announce(self: TransactionCycle, due: Any, writer: Any) -> list[do.Effect]:
    """Count one's own announcements at once, before they are committed."""
    effects = _begin(self, due, writer)
    for effect in effects:
        if isinstance(effect, do.PublishProgress):
            body, slot = effect.record.body, self._slots.get(effect.slot)
            if isinstance(body, PartitionAnnounced) and slot is not None:
                slot._announce(body)
    return effects


_deliver = TransactionCycle.deliver


def _deliver_without_fence(self: TransactionCycle, *args: Any) -> list[do.Effect]:
    return [e for e in _deliver(self, *args) if not isinstance(e, do.SendOffsets)]


def _deliver_with_bare_fence(self: TransactionCycle, *args: Any) -> list[do.Effect]:
    effects = _deliver(self, *args)
    return [do.SendOffsets(()) if isinstance(e, do.SendOffsets) else e for e in effects]


def _deliver_after_fence(self: TransactionCycle, *args: Any) -> list[do.Effect]:
    """Send the fence first and the snapshots behind it."""
    one = self.open
    effects = _deliver(self, *args)
    if one is not None and one.phase is TransactionPhase.SNAPSHOTTING:
        offsets = tuple((number, 0) for number in sorted(one.heartbeats))
        return [do.SendOffsets(offsets), *effects]
    return [e for e in effects if not isinstance(e, do.SendOffsets)]


def _unknown_is_aborted(self: Worker) -> list[do.Effect]:
    self._cycle.abort(0)
    return [do.RestartProducer()]


def _current_of_any_incarnation(self: Worker, number: int, incarnation: int) -> Slot | None:
    return self.slots.get(number)


_drop_slot = Worker._drop_slot


def _drop_slot_with_its_bytes(self: Worker, number: int) -> list[do.Effect]:
    return [e for e in _drop_slot(self, number) if not isinstance(e, do.ReleaseBudget)]


def _abort_believed(self: TransactionCycle) -> bool:
    return False


def _abort_without_pause(self: TransactionCycle, now_us: int) -> None:
    _abort(self, now_us)
    self._not_before_us = 0


def _never_act(self: GroupWatch, event: Any, *, now_us: int) -> None:
    return None


def _never_absent(self: GroupWatch, group: Any, now_us: int) -> bool:
    return False


BROKEN_FLEETS = (
    Mutant(
        "an abort after an unanswered commit believed",
        "single_writer",
        ((TransactionCycle, "is_commit_unanswered", property(_abort_believed)),),
    ),
    Mutant("ack early", "nothing_lost", ((TransactionCycle, "abort", _confirm_at_abort),)),
    Mutant(
        "forget one parent of a merge", "lineage", ((Slot, "_announce", _announce_with_one_parent),)
    ),
    Mutant("drop a marker", "lineage", ((ProgressWriter, "finish", _finish_without_marker),)),
    Mutant(
        "watermark at the data record's own time",
        "watermark",
        ((Position, "with_record", _at_its_own_time), (Position, "covers", _covers_by_transaction)),
    ),
    Mutant("a heartbeat taken at T", "watermark", ((Position, "with_heartbeat", _heartbeat_at_t),)),
    Mutant(
        "boundary instant repeated",
        "nothing_twice",
        ((Position, "covers", _covers_without_boundary),),
    ),
    Mutant(
        "boundary instant skipped",
        "nothing_lost",
        ((StreamPartition, "start_query", _start_after_boundary),),
    ),
    Mutant(
        "an unproven finish believed", "gaps", ((StreamPartition, "end_query", _believe_any_end),)
    ),
    Mutant(
        "totals counted before the commit",
        "completeness",
        ((StreamPartition, "publication", _publication_that_counts_at_once),),
    ),
    Mutant(
        "a child started before the commit",
        "lineage",
        ((TransactionCycle, "begin", _begin_and_announce),),
    ),
    Mutant("no fence", "single_writer", ((TransactionCycle, "deliver", _deliver_without_fence),)),
    Mutant(
        "a fence with no offset in it",
        "single_writer",
        ((TransactionCycle, "deliver", _deliver_with_bare_fence),),
    ),
    Mutant(
        "a record produced after the fence",
        "single_writer",
        ((TransactionCycle, "deliver", _deliver_after_fence),),
    ),
    Mutant(
        "an uncommitted tail not waited for on takeover",
        "single_writer",
        ((Log, "uncommitted_end", Log.stable_end),),
    ),
    Mutant(
        "a commit of unknown outcome published again",
        "nothing_twice",
        ((Worker, "_on_unknown_outcome", _unknown_is_aborted),),
    ),
    Mutant(
        "reads of a former incarnation believed",
        "soundness",
        ((Worker, "_current", _current_of_any_incarnation),),
    ),
    Mutant(
        "bytes of a lost slot not given back",
        "bounded_memory",
        ((Worker, "_drop_slot", _drop_slot_with_its_bytes),),
    ),
    Mutant(
        "an abort followed at once by the next attempt",
        "liveness",
        ((TransactionCycle, "abort", _abort_without_pause),),
    ),
    Mutant("a watch that never acts", "liveness", ((GroupWatch, "handle", _never_act),)),
    Mutant(
        "a worker that stays out of its group",
        "liveness",
        ((GroupWatch, "_is_absent_too_long", _never_absent),),
    ),
)
