"""Cores that are broken on purpose, and the checker that has to notice each of them.

A mutant is a handful of patches of production code (or, where the rule is the driver's, of the
driver's model).  It is caught when the checker named for it finds something within `SEEDS_MAX`
seeds; what other checkers find beside it does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tests.simulation import checkpoint as checkpoints
from tests.simulation.consumer import Consumer
from tests.simulation.kafka import Log
from tests.simulation.publisher import Publisher
from tests.simulation.runner import run_seed
from tidegate.producer.core import effects as do
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import Position, StreamPartition
from tidegate.producer.core.transaction import TransactionPhase
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.core.worker import Worker
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import PartitionAnnounced
from tidegate.spark_consumer.core import batch_run, gate, release
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.frontier import Frontier, Watermark
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.slot_view import SlotView, Snapshot

__all__ = ["MUTANTS", "Mutant", "caught_after"]

SEEDS_MAX = 400
Patches = tuple[tuple[Any, str, Any], ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to be wrong."""

    name: str
    checker: str
    patches: Patches

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Be wrong for a while."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                stack.enter_context(patch.object(owner, name, replacement))
            yield


# ---------------------------------------------------------------- what a worker believes


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


_draft = Slot.draft


def _drafted(change: Callable[[Slot, Any], Any]) -> Callable[..., Any]:
    def draft(self: Slot, publications: Any, written: Any, *, now_us: int) -> Any:
        return change(self, _draft(self, publications, written, now_us=now_us))

    return draft


def _short_vector(self: Slot, publications: Any, written: Any, *, now_us: int) -> Any:
    shorter = tuple(replace(entry, offset=entry.offset - 1) for entry in written)
    with patch("tidegate.producer.core.slot.invariant"):
        return _draft(self, publications, shorter, now_us=now_us)


def _without_slots(slot: Slot, snapshot: Any) -> Any:
    kept = tuple(entry for entry in snapshot.vector if not entry.topic.endswith("-progress"))
    return replace(snapshot, vector=kept)


def _without_waiting(slot: Slot, snapshot: Any) -> Any:
    kept = tuple(t for t in snapshot.tokens if set(t.parents) <= set(t.parents_heard))
    return replace(snapshot, tokens=kept)


def _includes_one_more(slot: Slot, snapshot: Any) -> Any:
    return replace(snapshot, includes=snapshot.includes + 1)


_own = Slot.own


def _own_without_vector(self: Slot, epoch: str) -> None:
    _own(self, epoch)
    self.vector = {}


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


_begin_query = StreamPartition.begin_query


def _begin_after_boundary(self: StreamPartition, query_id: int) -> int:
    start_ns = _begin_query(self, query_id)
    return start_ns + 2 * NS_PER_US if self.read.boundary else start_ns


def _heartbeat_at_t(self: Position, timestamp_us: int) -> Position:
    return Position(timestamp_us) if timestamp_us > self.watermark_us else self


def _believe_any_end(self: StreamPartition) -> bool:
    query, self._query = self._query, None
    if query is None:
        return False
    children = tuple(query.children.values())
    self._finish = (query.children_start_ns or self.read.watermark_us * NS_PER_US, children)
    return True


_publication = StreamPartition.publication


def _publication_that_counts_at_once(self: StreamPartition) -> Any:
    publication = _publication(self)
    self.totals = publication.totals
    return publication


# ---------------------------------------------------------------- the transaction


_begin = TransactionCycle.begin


def _begin_and_announce(self: TransactionCycle, concerned: Any, writer: Any) -> list[do.Effect]:
    """Count one's own announcements at once, before they are committed."""
    effects = _begin(self, concerned, writer)
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
        offsets = tuple((number, 0) for number in sorted(one.snapshots))
        return [do.SendOffsets(offsets), *effects]
    return [e for e in effects if not isinstance(e, do.SendOffsets)]


def _unknown_is_aborted(self: Worker) -> list[do.Effect]:
    self._cycle.abort(0)
    return [do.RestartProducer()]


def _current_of_any_incarnation(self: Worker, number: int, incarnation: int) -> Slot | None:
    return self.slots.get(number)


_forget = Worker._forget


def _forget_with_its_bytes(self: Worker, number: int) -> list[do.Effect]:
    return [e for e in _forget(self, number) if not isinstance(e, do.ReleaseBudget)]


_close_root = Worker._close_root


def _close_root_with_its_bytes(self: Worker) -> list[do.Effect]:
    return [e for e in _close_root(self) if not isinstance(e, do.ReleaseBudget)]


def _abort_without_pause(self: TransactionCycle, now_us: int) -> None:
    _abort(self, now_us)
    self._not_before_us = 0


def _fence_behind_snapshot(self: Slot, snapshot: Any, first_offset: int) -> int:
    return first_offset + 1


# ---------------------------------------------------------------- what the gate believes


def _in_effect_at_once(self: Snapshot, has_reached: Any) -> bool:
    return True


def _in_effect_by_data(self: Snapshot, has_reached: Any) -> bool:
    return all(
        has_reached(topic, number, offset)
        for topic, of in self.vector.items()
        if not topic.endswith("-progress")
        for number, offset in of.items()
    )


def _watermark_of_known_slots(self: Frontier) -> Watermark | None:
    if self._stream is None:
        return None
    found = [view.slowest() for view in self._slots.values() if view.current is not None]
    slowest = min((one for one in found if one is not None), default=None)
    return None if slowest is None else Watermark(slowest.watermark_us, slowest.token)


_fold_snapshot = SlotView._fold_snapshot


def _believe_first_chunk(self: SlotView, body: Any) -> None:
    if body.chunk == 0:
        _fold_snapshot(self, replace(body, chunks=1))


_settle = SlotView.settle


def _settle_and_drop(self: SlotView, has_reached: Any) -> None:
    before = self.current
    _settle(self, has_reached)
    if self.current is not before:
        self._announced = {}


_cut = release.cut


def _cut_one_early(*args: Any, through_us: int, **kwargs: Any) -> tuple[int, ...]:
    *bounds, last = _cut(*args, through_us=through_us, **kwargs)
    return (*bounds, last - 1)


_releases_of = release.releases_of


def _releases_without_segments(**kwargs: Any) -> Any:
    return tuple(replace(bounds, segments=()) for bounds in _releases_of(**kwargs))


_find_plan = BatchRun._find_plan


def _find_no_plan(self: BatchRun, plan: Plan | None) -> Any:
    return _find_plan(self, None)


def _write_over(self: checkpoints.Checkpoint, name: str, content: Any) -> None:
    self.write(name, content)


def _after_without_stored(state: Any, plan: Plan) -> Any:
    return gate.after(state, replace(plan, stored=()))


# ---------------------------------------------------------------- drivers and sinks


def _last_change(before: Any, changes: Any) -> dict[str, int] | None:
    *_, last = changes
    return None if last.mod == "D" else dict(last.columns)


def _metadata_of_now(self: Publisher) -> Any:
    return self.metadata()


def _newest_state(self: Consumer, batch: int) -> str:
    names = [name for name in self._checkpoint.files if name.startswith("states/")]
    return max(names, key=lambda name: int(name[7:-5]))


def _all_of_them(rows: list[Any]) -> list[Any]:
    return rows


def _silent(*args: Any, **kwargs: Any) -> None:
    return None


_NO_SELF_CHECK: Patches = (
    (BatchRun, "check_invariants", _silent),
    (Plan, "check_invariants", _silent),
)

MUTANTS = (
    Mutant("ack early", "nothing_lost", ((TransactionCycle, "abort", _confirm_at_abort),)),
    Mutant("forget one parent of a merge", "lineage", ((Slot, "_announce", _announce_with_one_parent),)),
    Mutant("drop a marker", "lineage", ((ProgressWriter, "finish", _finish_without_marker),)),
    Mutant("a vector without the last record", "watermark", ((Slot, "draft", _short_vector),)),
    Mutant("a vector that forgets the other slots", "soundness", ((Slot, "draft", _drafted(_without_slots)),)),
    Mutant("a vector that is not taken over", "watermark", ((Slot, "own", _own_without_vector),)),
    Mutant(
        "watermark at the data record's own time", "watermark",
        ((Position, "with_record", _at_its_own_time), (Position, "covers", _covers_by_transaction)),
    ),
    Mutant("a heartbeat taken at T", "watermark", ((Position, "with_heartbeat", _heartbeat_at_t),)),
    Mutant("boundary instant repeated", "nothing_twice", ((Position, "covers", _covers_without_boundary),)),
    Mutant("boundary instant skipped", "nothing_lost", ((StreamPartition, "begin_query", _begin_after_boundary),)),
    Mutant("an unproven finish believed", "gaps", ((StreamPartition, "end_query", _believe_any_end),)),
    Mutant("totals counted before the commit", "completeness", ((StreamPartition, "publication", _publication_that_counts_at_once),)),
    Mutant("a snapshot without the tokens that wait", "nothing_lost", ((Slot, "draft", _drafted(_without_waiting)),)),
    Mutant("a snapshot that includes one offset more", "liveness", ((Slot, "draft", _drafted(_includes_one_more)),)),
    Mutant("a fence's offset behind the snapshot", "single_writer", ((Slot, "fence_offset", _fence_behind_snapshot),)),
    Mutant("a child started before the commit", "lineage", ((TransactionCycle, "begin", _begin_and_announce),)),
    Mutant("no fence", "single_writer", ((TransactionCycle, "deliver", _deliver_without_fence),)),
    Mutant("a fence with no offset in it", "single_writer", ((TransactionCycle, "deliver", _deliver_with_bare_fence),)),
    Mutant("a record produced after the fence", "single_writer", ((TransactionCycle, "deliver", _deliver_after_fence),)),
    Mutant("group metadata refreshed inside the transaction", "single_writer", ((Publisher, "_fence_metadata", _metadata_of_now),)),
    Mutant("an uncommitted tail not waited for on takeover", "single_writer", ((Log, "uncommitted_end", Log.stable_end),)),
    Mutant("a commit of unknown outcome published again", "nothing_twice", ((Worker, "_on_unknown_outcome", _unknown_is_aborted),)),
    Mutant("reads of a former incarnation believed", "single_writer", ((Worker, "_current", _current_of_any_incarnation),)),
    Mutant("bytes of a lost slot not given back", "bounded_memory", ((Worker, "_forget", _forget_with_its_bytes),)),
    Mutant("the initial query's bytes not given back", "bounded_memory", ((Worker, "_close_root", _close_root_with_its_bytes),)),
    Mutant("an abort followed at once by the next attempt", "liveness", ((TransactionCycle, "abort", _abort_without_pause),)),
    Mutant("a snapshot in effect before its vector", "watermark", ((Snapshot, "is_in_effect", _in_effect_at_once),)),
    Mutant("a child forgotten when slots are read in another order", "soundness", ((Snapshot, "is_in_effect", _in_effect_by_data),)),
    Mutant("W taken before all slots were read", "watermark", ((Frontier, "watermark", _watermark_of_known_slots),)),
    Mutant("an incomplete set of chunks believed", "watermark", ((SlotView, "_fold_snapshot", _believe_first_chunk),)),
    Mutant("announcements dropped by any snapshot", "watermark", ((SlotView, "settle", _settle_and_drop),)),
    Mutant("release bound off by one", "nothing_lost", ((release, "cut", _cut_one_early), *_NO_SELF_CHECK)),
    Mutant("a release that does not open its segments", "nothing_lost", ((gate, "releases_of", _releases_without_segments), *_NO_SELF_CHECK)),
    Mutant("a segment that the state does not name", "nothing_lost", ((batch_run, "after", _after_without_stored), *_NO_SELF_CHECK)),
    Mutant("dedupe before release", "nothing_twice", ((Consumer, "_unique", staticmethod(_all_of_them)),)),
    Mutant("state loaded as “latest”", "soundness", ((Consumer, "_state_file", _newest_state),)),
    Mutant(
        "a replay that decides again", "nothing_lost",
        ((BatchRun, "_find_plan", _find_no_plan), (checkpoints.Checkpoint, "create", _write_over)),
    ),
    Mutant("a mirror that takes the last change", "mirrored_rows", ((checkpoints, "fold_row", _last_change),)),
)  # fmt: skip


def caught_after(mutant: Mutant, *, seeds_max: int = SEEDS_MAX) -> tuple[int | None, list[str]]:
    """Return how many seeds it took the mutant's checker, and all checkers that found something."""
    others: set[str] = set()
    with mutant.applied():
        for seed in range(1, seeds_max + 1):
            found = run_seed(seed).found
            others |= found.keys()
            if mutant.checker in found:
                return seed, sorted(others)
    return None, sorted(others)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim-mutants", description=__doc__)
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    began = time.perf_counter()
    missed = 0
    print(f"{'broken core':<56} {'checker':<18} {'seeds':>5}  found as well by")
    with ProcessPoolExecutor(options.workers) as pool:
        indices = [MUTANTS.index(mutant) for mutant in chosen]
        outcomes = pool.map(_outcome, indices, [options.seeds_max] * len(indices))
        for mutant, (seeds, found) in zip(chosen, outcomes, strict=True):
            missed += seeds is None
            told = "never" if seeds is None else str(seeds)
            others = ", ".join(name for name in found if name != mutant.checker)
            print(f"{mutant.name:<56} {mutant.checker:<18} {told:>5}  {others}", flush=True)
    seconds = time.perf_counter() - began
    print(f"within {options.seeds_max} seeds each, {seconds:.0f} s")
    print(f"{len(chosen) - missed} caught, {missed} missed")
    return 1 if missed else 0


def _outcome(index: int, seeds_max: int) -> tuple[int | None, list[str]]:
    return caught_after(MUTANTS[index], seeds_max=seeds_max)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
