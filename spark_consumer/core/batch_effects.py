"""What a batch asks for, in the imperative.

A list of effects is carried out strictly in its order.  One that brings an answer is the last of
its list, and the event beside it gives the answer back:

    LoadState -> StateLoaded          LoadPlan -> PlanLoaded        LoadFrontier -> FrontierLoaded
    ReadProgress -> ProgressRead      TakeCensus -> CensusTaken     StoreState -> StateStored

A kill between any two effects is survived: the batch is begun again, and asks again.  The effects
of a plan stand with it, in `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)

if TYPE_CHECKING:
    from tidegate.spark_consumer.core.batch_state import State, TopicIds
    from tidegate.spark_consumer.core.frontier import Frontier
    from tidegate.spark_consumer.core.plan import Plan

__all__ = [
    "BatchEffect",
    "DeleteFiles",
    "LoadFrontier",
    "LoadPlan",
    "LoadState",
    "ReadProgress",
    "StoreFrontier",
    "StorePlan",
    "StoreSchemas",
    "StoreState",
    "TakeCensus",
]


@dataclass(frozen=True, slots=True)
class LoadState:
    """Load the state that this batch, the one before the batch that runs, has left."""

    batch: int


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files and folders below the `gate` folder; what is not there is no fault."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Load the plan of this batch, the one that runs, if there is one."""

    batch: int


@dataclass(frozen=True, slots=True)
class LoadFrontier:
    """Load a frontier by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Read the batch's progress rows: of each Kafka key at least the newest."""

    offsets: int
    """How many offsets of the progress topic the batch spans."""


@dataclass(frozen=True, slots=True)
class TakeCensus:
    """Count the batch's changes: late up to `after_us`, due up to `through_us`, the rest early."""

    after_us: int
    through_us: int


@dataclass(frozen=True, slots=True)
class StoreSchemas:
    """Store every schema that these ids name, unless it is stored: a replay asks no registry."""

    topics: tuple[TopicIds, ...]


@dataclass(frozen=True, slots=True)
class StoreFrontier:
    """Store a frontier under its name; one that an attempt without a plan has left is replaced."""

    name: str
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Store the plan of its batch only if there is none; else raise CheckpointMismatch."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class StoreState:
    """Store the state of its batch; an equal one that is there already is no fault."""

    state: State


BatchEffect: TypeAlias = (
    LoadState
    | DeleteFiles
    | LoadPlan
    | LoadFrontier
    | ReadProgress
    | TakeCensus
    | StoreSchemas
    | StoreFrontier
    | StorePlan
    | SetLateAside
    | WriteRelease
    | StoreSegment
    | CompactSegments
    | StoreState
)
