"""Effects of a batch, in the imperative, and the answers that `batch_run` is sent for them.

    LoadState          State | None         DescribeTopics    ids by topic, None for a missing topic
    LoadPlan           Plan | None          ReadProgress      a portion of rows; None after the last
    LoadFrontier       FrontierLog | None   ReadMoreProgress  likewise
    CountChanges       BatchStats           CountRelease      ReleaseCount
    StoreSegment       a sum for each part  CompactSegments   likewise, and the sum of the inputs
    SetLateAside       rows in the table    StoreDeadLetters  rows in the table
    InspectSegments    the sum of each read, None for a segment that cannot be read

Other effects have no answer.  A topic for which Kafka has no answer is missing among the ids.  The
effects of a plan are in `plan`, and the one before them in `hand_over`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State, TopicIds
from tidegate.spark_consumer.core.frontier_log import FrontierLog, StoredFrontier
from tidegate.spark_consumer.core.hand_over import HandOver
from tidegate.spark_consumer.core.part_log import StoredFile
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
from tidegate.spark_consumer.core.row_sums import SegmentRead


@dataclass(frozen=True, slots=True)
class LoadState:
    """Load the state after `batch`, the batch before the one that runs."""

    batch: int


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files and folders below the `gate` folder; missing ones are no error."""

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

    Each portion goes on where the portion before it ended, in every slot; its rows are in any
    order.  A long history holds a part of its minutes only.
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
    """Count each of these reads by itself, to find the segment that is damaged."""

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
