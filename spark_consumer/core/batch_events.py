"""What a batch learns: the answers to what it asked for, in the past tense.

Facts only; what follows from them is decided in `batch_run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidegate.spark_consumer.core.batch_state import State
    from tidegate.spark_consumer.core.frontier import EndOffsets, Frontier, ProgressRow
    from tidegate.spark_consumer.core.gate import Census
    from tidegate.spark_consumer.core.plan import Plan

__all__ = [
    "BatchBegun",
    "BatchEvent",
    "CensusTaken",
    "FrontierLoaded",
    "PlanLoaded",
    "ProgressRead",
    "StateLoaded",
    "StateStored",
]


@dataclass(frozen=True, slots=True)
class BatchBegun:
    """Spark asks for the batch, for the first time or again; its rows end at these offsets."""

    end_offsets: EndOffsets


@dataclass(frozen=True, slots=True)
class StateLoaded:
    """The state that was asked for; None if there is none."""

    state: State | None


@dataclass(frozen=True, slots=True)
class PlanLoaded:
    """The plan that an earlier attempt has stored; None if no attempt came so far."""

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class FrontierLoaded:
    """The frontier that the state names; None if it is not there.

    It is handed over: the batch folds its progress into this very object.
    """

    frontier: Frontier | None


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """The batch's progress rows, in any order."""

    rows: tuple[ProgressRow, ...]


@dataclass(frozen=True, slots=True)
class CensusTaken:
    """The batch's changes, counted against the watermarks that were asked for."""

    census: Census


@dataclass(frozen=True, slots=True)
class StateStored:
    """The batch's own state is stored, and so everything before it is done."""


BatchEvent: TypeAlias = (
    BatchBegun
    | StateLoaded
    | PlanLoaded
    | FrontierLoaded
    | ProgressRead
    | CensusTaken
    | StateStored
)
