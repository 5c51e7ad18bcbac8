"""Events of a batch: the answers to its effects, in the past tense.

They carry facts only; `batch_run` decides what follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.lineage.frontier import EndOffsets, ProgressRow
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.row_sums import ReleaseCount, RowSum


@dataclass(frozen=True, slots=True)
class BatchBegun:
    """Spark starts the batch, for the first time or again; its rows end at these offsets.

    `now_us` is the wall time: only the cadence of the mirror goes by it.
    """

    end_offsets: EndOffsets
    now_us: int = 0


@dataclass(frozen=True, slots=True)
class StateLoaded:
    """The requested state; None if it is not stored."""

    state: State | None


@dataclass(frozen=True, slots=True)
class PlanLoaded:
    """The plan that an earlier attempt stored; None if no attempt got that far."""

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class FrontierLoaded:
    """The frontier that the state names; None if it is not stored.

    It is handed over: the batch folds its progress into this very object.
    """

    log: FrontierLog | None


@dataclass(frozen=True, slots=True)
class TopicsDescribed:
    """The ids of the topics, None for one that does not exist; one without an answer is missing."""

    ids: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """Some of the batch's progress rows, in any order.

    Each portion goes on where the one before it ended, in every slot.
    """

    rows: tuple[ProgressRow, ...]
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class ChangesCounted:
    """The batch's changes, counted against the requested watermarks."""

    stats: BatchStats


@dataclass(frozen=True, slots=True)
class ReleaseCounted:
    """The release is made and not yet written.

    `leaves_out` says whether the change stream leaves changes out, as far as the value schemas of
    the plan say.
    """

    count: ReleaseCount
    leaves_out: bool = False


@dataclass(frozen=True, slots=True)
class LateSetAside:
    """How many of the batch's changes the table of late changes holds now."""

    rows: int


@dataclass(frozen=True, slots=True)
class DeadLettersStored:
    """How many records of the batch, or of the release, the table of dead letters holds now."""

    rows: int


@dataclass(frozen=True, slots=True)
class SegmentsInspected:
    """What each read found; None where the segment cannot be read."""

    found: tuple[RowSum | None, ...]


@dataclass(frozen=True, slots=True)
class SegmentStored:
    """What was written to each part of the segment."""

    sums: tuple[RowSum, ...]


@dataclass(frozen=True, slots=True)
class SegmentsJoined:
    """What was written to each part of the output, and what was read of the counted inputs."""

    sums: tuple[RowSum, ...]
    read: RowSum


@dataclass(frozen=True, slots=True)
class StateStored:
    """The batch's own state is stored, so everything before it is done."""


BatchEvent: TypeAlias = (
    BatchBegun
    | StateLoaded
    | PlanLoaded
    | FrontierLoaded
    | TopicsDescribed
    | ProgressRead
    | ChangesCounted
    | ReleaseCounted
    | LateSetAside
    | DeadLettersStored
    | SegmentsInspected
    | SegmentStored
    | SegmentsJoined
    | StateStored
)
