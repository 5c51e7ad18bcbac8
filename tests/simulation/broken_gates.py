"""Gates, checkpoints and sinks that are broken on purpose: what they believe, release and keep."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

from tests.simulation import gate_rows, gate_sinks
from tests.simulation.delta import ConcurrentCommit, DeltaTable, at_point
from tests.simulation.gate_rows import MemoryRows
from tests.simulation.gate_sinks import ChangelogModel, MirrorModel
from tests.simulation.ground import Ground
from tests.simulation.mutant import Mutants, Patches
from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.lineage.frontier import Frontier, Watermark
from tidegate.lineage.slot_view import SlotView
from tidegate.lineage.snapshot_queue import SnapshotQueue, WaitingSnapshot
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.batch import effect_loop
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, newest_state
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.writers import Writers
from tidegate.spark_consumer.core import (
    batch_run,
    conservation,
    origin_ledger,
    release,
    transition,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.conservation import Balance
from tidegate.spark_consumer.core.gate import Gate
from tidegate.spark_consumer.core.origin_ledger import OriginLedger, fault_of
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.transactions import TransactionJudge, count_transactions
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.delta import commit_log
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog

BROKEN = Mutants()


def _silent(*args, **kwargs):
    return None


_NO_SELF_CHECK: Patches = (
    (BatchRun, "check_invariants", _silent),
    (Plan, "check_invariants", _silent),
    (Balance, "add_release", _silent),
    (Balance, "close", _silent),
)


_fold_snapshot, _items_since = SlotView._fold_snapshot, SlotView.items_since


BROKEN.add("a snapshot in effect before its vector", "watermark", (WaitingSnapshot, "is_reached"))(
    lambda self, has_reached: True
)
BROKEN.add(
    "a child forgotten when slots are read in another order",
    "soundness",
    (WaitingSnapshot, "is_reached"),
    first_seed=801,  # none of the 800 before shows it
)(
    lambda self, has_reached: all(
        has_reached(topic, number, offset)
        for (topic, number), offset in self.changes.items()
        if not topic.endswith("-progress")
    )
)


@BROKEN.add("W taken before all slots were read", "watermark", (Frontier, "watermark"))
def _(self):
    if self._stream is None:
        return None
    slowest_of_slots = [view.slowest() for view in self._slots.values() if view.current is not None]
    slowest = min((place for place in slowest_of_slots if place is not None), default=None)
    return None if slowest is None else Watermark(slowest.watermark_us, slowest.token)


@BROKEN.add("an incomplete set of chunks believed", "watermark", (SlotView, "_fold_snapshot"))
def _(self, body):
    if body.chunk == 0:
        _fold_snapshot(self, replace(body, chunks=1))


@BROKEN.add("snapshots dropped with what was new in them", "views", (SnapshotQueue, "_keep"))
def _(self, revisions):
    self._waiting = [waiting for waiting in self._waiting if waiting.snapshot.revision in revisions]
    self._entries = sum(len(waiting.changes) for waiting in self._waiting)
    self._thinned_at = -1 if self.newest is None else self.newest.revision


@BROKEN.add(
    "the highest of several announcements kept for all", "watermark", (SlotView, "_join_announced")
)
def _(self):
    last = max(self._announced.items(), key=lambda item: item[1].slowest)
    self._announced = dict([last])


BROKEN.add("gaps that the stored frontier forgets", "soundness", (SlotView, "items_since"))(
    lambda self, mark: (item for item in _items_since(self, mark) if item[0] != "gap")
)


_cut, _decide, _load_plan = release.cut, Gate.decide, BatchRun._load_plan
_slices = ReleaseBounds.slices.fget
_require_topics, _set_late_aside = BatchRun._require_topics, MemoryRows.set_late_aside


@BROKEN.add("release bound off by one", "nothing_lost", (release, "cut"), beside=_NO_SELF_CHECK)
def _(*args, through_us, **kwargs):
    *bounds, last = _cut(*args, through_us=through_us, **kwargs)
    return (*bounds, last - 1)


BROKEN.add(
    "ordinals that begin behind a gap after each slice",
    "commit_order",
    (gate_rows, "first_ordinals"),
)(lambda changes: tuple(first + n for n, first in enumerate(release.first_ordinals(changes))))


@BROKEN.add(
    "a slice that takes the timestamp of its lower cut too",
    "nothing_twice",
    (ReleaseBounds, "slices"),
    beside=_NO_SELF_CHECK,
)
@property
def _(self):
    (low, high), *rest = _slices(self)
    return ((low, high), *((low - 1, high) for low, high in rest))


@BROKEN.add(
    "a segment compared by its count alone",
    "nothing_lost",
    (batch_run, "is_whole"),
    beside=_NO_SELF_CHECK,
)
def _(reads, found):
    counted = [read.expected.rows for read in reads if read.expected is not None]
    return found.rows == sum(counted)


BROKEN.add(
    "two records with one order key taken for copies",
    "nothing_lost",
    (conservation, "_require_equal_copies"),
)(_silent)
BROKEN.add("dedupe before release", "nothing_twice", (MemoryRows, "unique"))(staticmethod(list))


@BROKEN.add(
    "late changes that are not counted in their table",
    "nothing_lost",
    (MemoryRows, "set_late_aside"),
    beside=((Balance, "add_late", _silent),),
)
def _(self, plan):
    _set_late_aside(self, plan)
    del self._late[plan.batch][:1]
    return len(self._late[plan.batch])


BROKEN.add("segments named without their writer", "soundness", (batch_run, "segment_name"))(
    lambda planned, *, writer: f"{planned}/0"
)


def _write_over(self, name, text):
    self.put(name, text)
    return True


@BROKEN.add(
    "a replay that decides again",
    "one_plan",
    (BatchRun, "_load_plan"),
    beside=((ObjectStore, "put_if_absent", _write_over),),
)
def _(self):
    yield from _load_plan(self)


BROKEN.add("a plan without gaps", "accepted_gaps", (Gate, "decide"))(
    lambda self, *args, **options: replace(_decide(self, *args, **options), gaps=())
)
BROKEN.add("data topics compared in the first batch only", "ground", (BatchRun, "_require_topics"))(
    lambda self, gate: iter(()) if self._batch else _require_topics(self, gate)
)
BROKEN.add("expired data passed over in silence", "nothing_lost", (Ground, "require_kept"))(_silent)


_take, _settle = TransactionJudge.take, TransactionJudge.settle
_settled = OriginLedger.settled


BROKEN.add(
    "whatever a transaction lacks taken for parked", "nothing_lost", (TransactionJudge, "settle")
)(
    lambda self, *, release, may_be_parked=True, dead_letters=0: _settle(
        self, release=release, may_be_parked=True, dead_letters=dead_letters
    )
)
BROKEN.add(
    "a record that no transaction states released with it",
    "nothing_twice",
    (TransactionJudge, "take"),
)(lambda self, faults, *, leaves_out: _take(self, replace(faults, others=0), leaves_out=leaves_out))
BROKEN.add(
    "a transaction counted that had expired in part", "soundness", (gate_rows, "count_transactions")
)(lambda changes, *, after_us=-1, gaps=(): count_transactions(changes, gaps=gaps))


@BROKEN.add(
    "a transaction that is lost as a whole released without",
    "nothing_lost",
    (OriginLedger, "settled"),
)
def _(self, through_us, **settings):
    ledger, _ = _settled(self, through_us, **settings)
    return ledger, ()


BROKEN.add(
    "a stream partition judged that had expired in part", "soundness", (OriginLedger, "settled")
)(
    lambda self, through_us, *, complete_from_us, keeps_faulty=False: _settled(
        self, through_us, complete_from_us=-1, keeps_faulty=keeps_faulty
    )
)
BROKEN.add("another hash's checksum compared", "soundness", (origin_ledger, "fault_of"))(
    lambda expected, found, *, parked, has_checksum: fault_of(
        expected, found, parked=parked, has_checksum=True
    )
)
BROKEN.add(
    "what was put back taken for too many changes", "soundness", (origin_ledger, "fault_of")
)(
    lambda expected, found, *, parked, has_checksum: fault_of(
        expected, found, parked=0, has_checksum=has_checksum
    )
)


_store_state, _topics = GateFiles.store_state, SchemaStore.topics


BROKEN.add("state loaded as “latest”", "soundness", (GateFiles, "state"))(
    lambda self, batch: newest_state(self._storage)
)


def _create_if_not_listed(self, name, content):
    folder, _, file = name.rpartition("/")
    if file in self.names(folder):
        return False
    self._write(name, json.dumps(content))
    self._on_create(name, content)
    return True


@BROKEN.add(
    "a run and its plans numbered after a look at the listing",
    "soundness",
    (Writers, "newest"),
    beside=((StoreClient, "create", _create_if_not_listed),),
)
def _(self):
    listed = self._files.names("writers")
    return max((int(name) for name in listed if name.isdecimal()), default=0)


@BROKEN.add("a file written in place", "soundness", (StoreClient, "_write"))
def _(self, name, text):
    disturbance = self._disturbance
    if disturbance is not None and disturbance.chance(disturbance.profile.dies_in_rename):
        self._store.put(self._path(name), text[: len(text) // 2])
        raise UnreachableError("killed in the middle of a file")
    self._store.put(self._path(name), text)


@BROKEN.add(
    "a state stored before the files that it names", "soundness", (GateFiles, "store_state")
)
def _(self, state, files=()):
    _store_state(self, state)
    _store_state(self, state, files)


@BROKEN.add("a run that looks for its successor's claim only", "soundness", (Writers, "require"))
def _(self):
    if self.number is None or self._has(self.number + 1):
        raise WriterReplaced("another run has taken this folder")


@BROKEN.add(
    "a replay that reads with the newest schema of the registry",
    "soundness",
    (SchemaStore, "topics"),
    first_seed=801,  # none of the 800 before shows it
)
def _(self, known, subscription):
    """Look at the registry in a run that has decided nothing yet: its first batch is a replay."""
    if self._of_topics:
        return _topics(self, known, subscription)
    newest = []
    for ids in known:
        versions = self._registry._registry.subjects.get(f"{ids.topic}-value", [])
        newest.append(replace(ids, value_ids=tuple(sorted({*ids.value_ids, *versions}))))
    return _topics(self, newest, subscription)


_SINKS = {sink: sink._apply for sink in (ChangelogModel, MirrorModel)}
_BOTH = tuple((sink, "_apply") for sink in _SINKS)


BROKEN.add(
    "a release's version taken from the head of the table", "manifests", (CommitLog, "version_at")
)(lambda self, release: self._head)


@BROKEN.add(
    "metadata believed whatever the commit's operation is", "soundness", (commit_log, "_stated")
)
def _stated_by_any_operation(operation, user_metadata):
    """Believe metadata that a commit has inherited from its session."""
    statement = json.loads(user_metadata or "null")
    return statement["tidegate"] if isinstance(statement, dict) else None


@BROKEN.add(
    "a fresh handle that commits a repeated version", "soundness", (gate_sinks, "open_handle")
)
def _(table, transaction, disturbance):
    """Look for the transaction in one handle, and commit with a fresh one."""
    if table.open().has(transaction):
        return None
    at_point(disturbance, table)
    return table.open()


@BROKEN.add("a conflict taken for success", "mirrored_rows", *_BOTH)
def _(self, *args):
    with suppress(ConcurrentCommit):
        _SINKS[type(self)](self, *args)


@BROKEN.add("a conflict retried whatever the table has by now", "soundness", *_BOTH)
def _apply_until_it_commits(self, *args):
    try:
        _SINKS[type(self)](self, *args)
    except ConcurrentCommit:
        with patch.object(DeltaTable, "_has", lambda *_: False):
            _apply_until_it_commits(self, *args)


_merge_mirrors = effect_loop.merge_mirrors
_release_steps = Plan._release_steps


BROKEN.add(
    "a mirror that joins and takes what others lack alone",
    "mirrored_rows",
    (effect_loop, "merge_mirrors"),
)(lambda step, **more: _merge_mirrors(replace(step, joining=()), **more))
BROKEN.add(
    "a state that forgets what the mirror lacks", "mirrored_rows", (transition, "_mirror_release")
)(_silent)
BROKEN.add("a mirror that is never due", "mirror_cadence", (Cadence, "is_due"))(
    lambda *args, **kwargs: False
)
