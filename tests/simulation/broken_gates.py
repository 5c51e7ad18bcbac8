"""Gates and sinks that are broken on purpose: what they believe, release and remember."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation import gate_rows, gate_sinks
from tests.simulation.delta import ConcurrentCommit, DeltaTable, at_point
from tests.simulation.gate_rows import MemoryRows
from tests.simulation.gate_sinks import ChangelogModel, MirrorModel
from tests.simulation.mutant import Mutant, Patches
from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.lineage import snapshot_queue
from tidegate.lineage.frontier import Frontier, Watermark
from tidegate.lineage.slot_view import SlotView
from tidegate.lineage.snapshot_queue import SnapshotQueue, WaitingSnapshot
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, newest_state
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.writers import Writers
from tidegate.spark_consumer.core import batch_run, conservation, gate, release
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.conservation import Balance
from tidegate.spark_consumer.core.files import frontier_file, frontier_folder
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.gate import Gate
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.row_sums import RowSum
from tidegate.spark_consumer.sinks.delta import commit_log
from tidegate.spark_consumer.sinks.delta.commit_log import (
    Commit,
    CommitLog,
    TableCommit,
    WrittenCommit,
)

__all__ = ["BROKEN_GATES"]

# ---------------------------------------------------------------- what the gate believes


def _in_effect_at_once(self: WaitingSnapshot, has_reached: Any) -> bool:
    return True


def _in_effect_by_data(self: WaitingSnapshot, has_reached: Any) -> bool:
    return all(
        has_reached(topic, number, offset)
        for (topic, number), offset in self.changes.items()
        if not topic.endswith("-progress")
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


def _settle_and_drop(self: SlotView, has_reached: Any, **limits: Any) -> None:
    before = self.current
    _settle(self, has_reached, **limits)
    if self.current is not before:
        self._announced = {}


def _keep_without_their_changes(self: SnapshotQueue, revisions: set[int]) -> None:
    """Drop snapshots with what was new in them."""
    self._waiting = [one for one in self._waiting if one.snapshot.revision in revisions]
    self._entries = sum(len(one.changes) for one in self._waiting)
    self._thinned_at = -1 if self.newest is None else self.newest.revision


def _keep_the_older_half(self: SnapshotQueue, entries_max: int) -> None:
    """Drop the last snapshots of too many, as if the next ones made up for them."""
    most = snapshot_queue.SNAPSHOTS_WAITING_MAX
    if len(self._waiting) > most:
        self._keep({one.snapshot.revision for one in self._waiting[: most - 1]})
        self.newest = self._waiting[-1].snapshot


def _join_as_the_highest(self: SlotView) -> None:
    """Keep the announcement with the highest start of those that stand for others."""
    last = max(self._announced.items(), key=lambda one: one[1].slowest)
    self._announced = dict([last])


_items_since = SlotView.items_since


def _items_without_announcements(self: SlotView, mark: Any) -> Any:
    return (item for item in _items_since(self, mark) if item[0] != "announced")


def _folders_of_the_newest(self: FrontierLog, name: str) -> frozenset[str]:
    return frozenset({frontier_folder(frontier_file(name))})


_write_log = FrontierLog.write


def _write_since_the_last_but_one(self: FrontierLog, name: str, *, code: str) -> Any:
    """Store what has changed since the frontier was loaded, as if the last part were there."""
    before = self._parts
    stored = _write_log(self, name, code=code)
    self._parts = before if len(before) > 1 else self._parts
    return stored


_cut = release.cut


def _cut_one_early(*args: Any, through_us: int, **kwargs: Any) -> tuple[int, ...]:
    *bounds, last = _cut(*args, through_us=through_us, **kwargs)
    return (*bounds, last - 1)


_releases_of = release.releases_of


def _releases_without_segments(**kwargs: Any) -> Any:
    return tuple(replace(bounds, segments=()) for bounds in _releases_of(**kwargs))


def _all_from_zero(changes: Any) -> tuple[int, ...]:
    return tuple(0 for _ in changes)


def _one_too_far(changes: Any) -> tuple[int, ...]:
    return tuple(first + n for n, first in enumerate(release.first_ordinals(changes)))


_slices = ReleaseBounds.slices.fget  # type: ignore[attr-defined]  # mypy takes it for its value


def _slices_that_overlap(self: ReleaseBounds) -> Any:
    (low, high), *rest = _slices(self)
    return ((low, high), *((low - 1, high) for low, high in rest))


_find_plan = BatchRun._find_plan


def _find_no_plan(self: BatchRun, plan: Plan | None) -> Any:
    return _find_plan(self, None)


def _write_over(self: ObjectStore, name: str, text: str) -> bool:
    self.put(name, text)
    return True


def _after_without_stored(state: Any, plan: Plan, **changes: Any) -> Any:
    return gate.after(state, replace(plan, stored=()), **changes)


# ---------------------------------------------------------------- drivers and sinks


def _last_change(before: Any, changes: Any) -> dict[str, int] | None:
    *_, last = changes
    return None if last.mod == "D" else dict(last.columns)


def _newest_state(self: GateFiles, batch: int) -> State | None:
    return newest_state(self._storage)


def _all_of_them(rows: list[Any]) -> list[Any]:
    return rows


# ---------------------------------------------------------------- storage


def _create_if_not_listed(self: StoreClient, name: str, content: Any) -> bool:
    folder, _, file = name.rpartition("/")
    if file in self.names(folder):
        return False
    self._write(name, json.dumps(content))
    self._on_create(name, content)
    return True


def _newest_listed(self: Writers) -> int:
    listed = self._files.names("writers")
    return max((int(name) for name in listed if name.isdecimal()), default=0)


def _write_in_place(self: StoreClient, name: str, text: str) -> None:
    disturbance = self._disturbance
    if disturbance is not None and disturbance.chance(disturbance.profile.dies_in_rename):
        self._store.put(self._path(name), text[: len(text) // 2])
        message = "killed in the middle of a file"
        raise UnreachableError(message)
    self._store.put(self._path(name), text)


_no_longer_needed = gate.no_longer_needed


def _needed_by_nobody(state: State) -> tuple[str, ...]:
    frontiers = () if state.frontier is None else (frontier_file(state.frontier),)
    return (*_no_longer_needed(state), *frontiers)


# ---------------------------------------------------------------- tables


def _head(self: CommitLog, release: int) -> int:
    return self._head


def _not_seen(*args: Any, **kwargs: Any) -> bool:
    return False


def _prepared_or_written(self: CommitLog, commit: Commit) -> WrittenCommit | None:
    found = [known for known in self._written if known.release == commit.release]
    return found[-1] if found else None


def _stated_by_any_operation(operation: str, user_metadata: str | None) -> Any:
    """Believe metadata that a commit has inherited from its session."""
    found = json.loads(user_metadata or "null")
    return found["tidegate"] if isinstance(found, dict) else None


def _never_written(self: CommitLog, commit: Commit) -> WrittenCommit | None:
    return None


def _open_another(table: DeltaTable, transaction: Any, disturbance: Any) -> Any:
    """Look for the transaction in one handle, and commit with a fresh one."""
    if table.open().has(transaction):
        return None
    at_point(disturbance, table)
    return table.open()


_SINKS = {sink: sink._apply for sink in (ChangelogModel, MirrorModel)}


def _for_both_sinks(broken: Callable[..., None]) -> Patches:
    return tuple((sink, "_apply", broken) for sink in _SINKS)


def _apply_through_conflicts(self: Any, *args: Any) -> None:
    with suppress(ConcurrentCommit):
        _SINKS[type(self)](self, *args)


def _apply_until_it_commits(self: Any, *args: Any) -> None:
    """Retry after a conflict, without a look at what the other one has committed."""
    try:
        _SINKS[type(self)](self, *args)
    except ConcurrentCommit:
        with patch.object(DeltaTable, "_has", _not_seen):
            _apply_until_it_commits(self, *args)


def _apply_without_id(self: Any, table: DeltaTable, *args: Any) -> None:
    """Commit under an id that no other commit has."""
    one, (_, number), commit = args
    _SINKS[type(self)](self, table, one, (f"{id(self)}/{table.head}", number), commit)


def _widen_nothing(*args: Any, **kwargs: Any) -> None:
    return None


# ---------------------------------------------------------------- schemas


_topics = SchemaStore.topics


def _topics_as_first_seen(self: SchemaStore, known: Any, subscription: Any) -> Any:
    cache = self.__dict__.setdefault("_by_topic", {})
    found = _topics(self, known, subscription)
    return {topic: cache.setdefault(topic, schemas) for topic, schemas in found.items()}


def _topics_of_a_replay(self: SchemaStore, known: Any, subscription: Any) -> Any:
    """Look at the registry in a run that has decided nothing yet: its first batch is a replay."""
    if self._of_topics:
        return _topics(self, known, subscription)
    newest = []
    for ids in known:
        subjects: dict[str, list[int]] = self._registry._registry.subjects  # type: ignore[attr-defined]
        found = subjects.get(f"{ids.topic}-value", [])
        newest.append(replace(ids, value_ids=tuple(sorted({*ids.value_ids, *found}))))
    return _topics(self, newest, subscription)


def _merge_what_is_seen(self: Gate, seen: Any) -> Any:
    return tuple(sorted(seen, key=lambda ids: ids.topic))


_watermark = Frontier.watermark


def _watermark_rounded_up(self: Frontier) -> Watermark | None:
    found = _watermark(self)
    if found is None or found.slowest is not None or self._stream is None:
        return found
    end_ns = self._stream.end_ns or 0
    return Watermark(-(-end_ns // 1_000), None)


def _silent(*args: Any, **kwargs: Any) -> None:
    return None


def _whole_by_count(reads: Any, found: RowSum) -> bool:
    counted = [read.expected.rows for read in reads if read.expected is not None]
    return found.rows == sum(counted)


def _whole_whatever_is_found(reads: Any, found: RowSum) -> bool:
    return True


def _balance_of_nothing(self: Balance, segments: Any) -> int | None:
    return None


def _name_without_writer(planned: str, *, writer: int) -> str:
    return f"{planned}/0"


def _read_the_half(self: MemoryRows, reads: Any) -> Any:
    rows, waiting = _read(self, reads)
    return rows[::2], waiting


_read = MemoryRows._read


def _lose_a_late_row(self: MemoryRows, plan: Plan) -> int:
    _set_late_aside(self, plan)
    del self._late[plan.batch][:1]
    return len(self._late[plan.batch])


_set_late_aside = MemoryRows.set_late_aside


def _collect_one_less(self: MemoryRows, **bounds: Any) -> Any:
    """Where rows are collected, count without the last that is due."""
    stats = _count_changes(self, **bounds)
    if not self._collects or not stats.due.rows:
        return stats
    return replace(stats, due=replace(stats.due, rows=stats.due.rows - 1))


def _collect_rounded_times(self: MemoryRows, **bounds: Any) -> Any:
    """Where rows are collected, take commit times in tens of microseconds."""
    stats = _count_changes(self, **bounds)
    if not self._collects or stats.early_max_us is None:
        return stats
    last_us = stats.early_max_us // 10 * 10
    return replace(stats, early_max_us=max(last_us, stats.early_min_us or 0))


_count_changes = MemoryRows.count_changes


_NO_SELF_CHECK: Patches = (
    (BatchRun, "check_invariants", _silent),
    (Plan, "check_invariants", _silent),
    (Balance, "add_release", _silent),
    (Balance, "close", _balance_of_nothing),
)

BROKEN_GATES = (
    Mutant(
        "a maintenance of a table taken for a change of its rows",
        "soundness",
        ((TableCommit, "is_harmless", False),),
    ),
    Mutant(
        "late changes that are not counted in their table",
        "nothing_lost",
        ((MemoryRows, "set_late_aside", _lose_a_late_row), (Balance, "add_late", _silent)),
    ),
    Mutant(
        "a snapshot in effect before its vector",
        "watermark",
        ((WaitingSnapshot, "is_reached", _in_effect_at_once),),
    ),
    Mutant(
        "a child forgotten when slots are read in another order",
        "soundness",
        ((WaitingSnapshot, "is_reached", _in_effect_by_data),),
        first_seed=801,  # none of the 800 before shows it
    ),
    Mutant(
        "W taken before all slots were read",
        "watermark",
        ((Frontier, "watermark", _watermark_of_known_slots),),
    ),
    Mutant(
        "an incomplete set of chunks believed",
        "watermark",
        ((SlotView, "_fold_snapshot", _believe_first_chunk),),
    ),
    Mutant(
        "announcements dropped by any snapshot",
        "watermark",
        ((SlotView, "settle", _settle_and_drop),),
    ),
    Mutant(
        "snapshots dropped with what was new in them",
        "views",
        ((SnapshotQueue, "_keep", _keep_without_their_changes),),
    ),
    Mutant(
        "the newest of too many snapshots dropped",
        "views",
        ((SnapshotQueue, "thin", _keep_the_older_half),),
    ),
    Mutant(
        "the highest of several announcements kept for all",
        "watermark",
        ((SlotView, "_join_announced", _join_as_the_highest),),
    ),
    Mutant(
        "announcements left out of what is stored",
        "soundness",
        ((SlotView, "items_since", _items_without_announcements),),
    ),
    Mutant(
        "parts of the frontier deleted that the newest index names",
        "soundness",
        ((FrontierLog, "_folders", _folders_of_the_newest),),
    ),
    Mutant(
        "a part of the frontier left out of the next index",
        "soundness",
        ((FrontierLog, "write", _write_since_the_last_but_one),),
    ),
    Mutant(
        "release bound off by one",
        "nothing_lost",
        ((release, "cut", _cut_one_early), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a release that does not open its segments",
        "nothing_lost",
        ((gate, "releases_of", _releases_without_segments), *_NO_SELF_CHECK),
    ),
    Mutant(
        "every slice of a release numbered from 0",
        "commit_order",
        ((gate_rows, "first_ordinals", _all_from_zero),),
    ),
    Mutant(
        "ordinals that begin behind a gap after each slice",
        "commit_order",
        ((gate_rows, "first_ordinals", _one_too_far),),
    ),
    Mutant(
        "a slice that takes the timestamp of its lower cut too",
        "nothing_twice",
        ((ReleaseBounds, "slices", property(_slices_that_overlap)), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a segment that the state does not name",
        "nothing_lost",
        ((batch_run, "after", _after_without_stored), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a damaged segment released as it is",
        "nothing_lost",
        ((batch_run, "is_whole", _whole_whatever_is_found), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a segment compared by its count alone",
        "nothing_lost",
        ((batch_run, "is_whole", _whole_by_count), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a plan that names the schemas of its own batch only",
        "soundness",
        ((Gate, "_merged", _merge_what_is_seen),),
    ),
    Mutant(
        "the end of a bounded stream rounded up to microseconds",
        "watermark",
        ((Frontier, "watermark", _watermark_rounded_up),),
    ),
    Mutant(
        "two records with one order key taken for copies",
        "nothing_lost",
        ((conservation, "_require_equal_copies", _silent),),
    ),
    Mutant(
        "segments named without their writer",
        "soundness",
        ((batch_run, "segment_name", _name_without_writer),),
    ),
    Mutant(
        "a collected batch that counts a change less",
        "soundness",
        ((MemoryRows, "count_changes", _collect_one_less),),
    ),
    Mutant(
        "a collected batch with rounded times",
        "soundness",
        ((MemoryRows, "count_changes", _collect_rounded_times),),
    ),
    Mutant(
        "waiting changes read and not released",
        "soundness",
        ((MemoryRows, "_read", _read_the_half),),
    ),
    Mutant(
        "dedupe before release",
        "nothing_twice",
        ((MemoryRows, "unique", staticmethod(_all_of_them)),),
    ),
    Mutant("state loaded as “latest”", "soundness", ((GateFiles, "state", _newest_state),)),
    Mutant(
        "a replay that decides again",
        "one_plan",
        ((BatchRun, "_find_plan", _find_no_plan), (ObjectStore, "put_if_absent", _write_over)),
    ),
    Mutant(
        "a mirror that takes the last change",
        "mirrored_rows",
        ((gate_sinks, "fold_row", _last_change),),
    ),
    Mutant(
        "a run and its plans numbered after a look at the listing",
        "soundness",
        (
            (StoreClient, "create", _create_if_not_listed),
            (Writers, "newest", _newest_listed),
        ),
    ),
    Mutant(
        "a file written in place",
        "soundness",
        ((StoreClient, "_write", _write_in_place),),
    ),
    Mutant(
        "a frontier deleted before the batch that needs it",
        "soundness",
        ((batch_run, "no_longer_needed", _needed_by_nobody),),
    ),
    Mutant(
        "a release's version taken from the head of the table",
        "manifests",
        ((CommitLog, "version_at", _head),),
    ),
    Mutant(
        "a table's preparation taken for its release",
        "nothing_lost",
        ((CommitLog, "written", _prepared_or_written),),
    ),
    Mutant(
        "metadata believed whatever the commit's operation is",
        "soundness",
        ((commit_log, "_stated", _stated_by_any_operation),),
    ),
    Mutant(
        "a release written whatever the table holds",
        "soundness",
        ((CommitLog, "written", _never_written), (DeltaTable, "_has", _not_seen)),
    ),
    Mutant(
        "a conflict taken for success",
        "mirrored_rows",
        _for_both_sinks(_apply_through_conflicts),
    ),
    Mutant(
        "a conflict retried whatever the table has by now",
        "soundness",
        _for_both_sinks(_apply_until_it_commits),
    ),
    Mutant(
        "a release written without its transaction id",
        "soundness",
        _for_both_sinks(_apply_without_id),
    ),
    Mutant(
        "a fresh handle that commits a repeated version",
        "soundness",
        ((gate_sinks, "open_handle", _open_another),),
    ),
    Mutant(
        "a new column's rows written before the table has it",
        "soundness",
        ((DeltaTable, "widen", _widen_nothing),),
    ),
    Mutant(
        "a replay that reads with the newest schema of the registry",
        "soundness",
        ((SchemaStore, "topics", _topics_of_a_replay),),
        first_seed=801,  # none of the 800 before shows it
    ),
    Mutant(
        "schemas kept as first seen",
        "soundness",
        ((SchemaStore, "topics", _topics_as_first_seen),),
    ),
)
