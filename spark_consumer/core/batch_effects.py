"""The effects of a batch, and the answers to them that the effect loop sends to `batch_run`.

    LoadState          State | None         DescribeTopics    ids by topic, None for a missing topic
    LoadPlan           Plan | None          ReadProgress      a portion of rows; None after the last
    LoadFrontier       FrontierLog | None   ReadMoreProgress  likewise
    CountChanges       BatchStats           CountRelease      ReleaseCount
    StoreSegment       a sum for each part  CompactSegments   likewise, and the sum of the inputs
    SetLateAside       rows in the table    StoreDeadLetters  rows in the table
    InspectSegments    the sum of each read, None for a segment that cannot be read

Other effects have no answer.  A topic for which Kafka has no answer is missing among the ids.  The
effects of a plan are in `plan`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State, TopicIds
from tidegate.spark_consumer.core.part_log import FrontierLog, StoredFile, StoredFrontier
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    MergeMirror,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.sums import SegmentRead
from tidegate.spark_consumer.errors import ChangesNotConserved


@dataclass(frozen=True, slots=True)
class LoadState:
    """Load the state after `batch`, the batch before the running one."""

    batch: int


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files and folders below the `gate` folder; missing ones are not an error."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropManifests:
    """Delete the manifests of releases before one: no release of the batch is among them."""

    before: int


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Load the plan of the batch that runs, if an earlier attempt has stored it."""

    batch: int


@dataclass(frozen=True, slots=True)
class LoadFrontier:
    """Load a frontier by its name; the batch folds its progress into the very object."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """Ask Kafka for the ids that these topics have now."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Begin to read the batch's progress rows: at least the newest record of each Kafka key.

    In every slot each portion continues where the portion before it ended; its rows are in any
    order.  Of a long history only a part of the minutes is read.
    """

    offsets: int
    """Offsets of the progress topic that the batch spans."""
    data_offsets: int
    """Offsets of all data topics: where both are few, one job reads progress and changes."""


@dataclass(frozen=True, slots=True)
class ReadMoreProgress:
    """Read the next portion of the progress rows."""


@dataclass(frozen=True, slots=True)
class CountChanges:
    """Count the changes: late up to `after_us`, due up to `through_us`, the others early."""

    after_us: int
    through_us: int
    offsets: int
    """Offsets of all data topics that the batch spans."""


@dataclass(frozen=True, slots=True)
class CountRelease:
    """Make a release and count it; it stays open for the `WriteRelease` that may follow."""

    bounds: ReleaseBounds
    reads: tuple[SegmentRead, ...]
    complete_from_us: int = BEFORE_EVERYTHING_US
    """Transactions up to this commit time may lack records: they are not counted."""
    gaps: tuple[PartitionGap, ...] = ()
    """Accepted gaps within the bounds: transactions in one may lack records."""


@dataclass(frozen=True, slots=True)
class InspectSegments:
    """Count each of these reads separately, to find the damaged segment."""

    reads: tuple[SegmentRead, ...]


@dataclass(frozen=True, slots=True)
class StoreSchemas:
    """Store every schema that these ids name, so that a replay needs no registry."""

    topics: tuple[TopicIds, ...]


@dataclass(frozen=True, slots=True)
class StoreFrontier:
    """Store a frontier under its name: its files in order, the index last."""

    name: str
    log: FrontierLog
    stored: StoredFrontier


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Store the plan of its batch if none is stored; else raise CheckpointConflict."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class StoreState:
    """Store the files that a state names, then the state of its batch; replaces an equal one."""

    state: State
    files: tuple[StoredFile, ...] = ()


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hand all changes that the batch has read to these sinks, one sink after the other.

    It precedes the plan's steps and does not wait for the watermark: each change is handed over by
    the batch that reads it.  The plan is stored before that, so a replay gives the same sinks the
    same changes under the same number, however often the batch is repeated.
    """

    sinks: tuple[str, ...]
    rows: int | None
    """How many changes the plan has counted; None where it is an older program's.

    It includes changes that cannot be decoded, which is not known before.
    """


BatchEffect: TypeAlias = (
    LoadState
    | DeleteFiles
    | DropManifests
    | LoadPlan
    | LoadFrontier
    | DescribeTopics
    | ReadProgress
    | ReadMoreProgress
    | CountChanges
    | CountRelease
    | InspectSegments
    | StoreSchemas
    | StoreFrontier
    | StorePlan
    | HandOver
    | StoreDeadLetters
    | SetLateAside
    | WriteRelease
    | MergeMirror
    | StoreSegment
    | CompactSegments
    | StoreState
)


def hand_over(plan: Plan, takers: Collection[str]) -> tuple[HandOver, ...]:
    """Return the effect of a plan; none if it has no change, or no sink that takes batches.

    `takers` are the sinks of this run that take batches.  A sink that the plan does not name begins
    with the next batch: a replay by a run without it would not repeat the changes that it got now.
    """
    sinks = tuple(name for name in plan.sinks if name in takers)
    rows = _rows(plan)
    return (HandOver(sinks, rows),) if sinks and rows != 0 else ()


def require_handed(rows: int, effect: HandOver, *, batch: int) -> None:
    """Raise ChangesNotConserved if a batch holds other than the changes that its plan counted."""
    if effect.rows not in (None, rows):
        raise ChangesNotConserved(
            "a batch does not hold the changes that its plan counted",
            hint="Nothing of it was handed over; a restart repeats the batch",
            batch=batch,
            planned=effect.rows,
            found=rows,
        )


def _rows(plan: Plan) -> int | None:
    if plan.fresh is None:
        return None
    fresh = plan.fresh.due_rows + plan.fresh.early.rows
    return fresh + plan.late_rows + plan.repeated_rows
