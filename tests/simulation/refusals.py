"""Errors by which a gate refuses its rows, and what in a run explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    ConflictingCopies,
    DataTopicChanged,
    SegmentDamaged,
    StreamPartitionIncomplete,
    TransactionIncomplete,
)

if TYPE_CHECKING:
    from tests.simulation.world import World
    from tidegate.schemas.errors import ConsumerError

__all__ = ["REFUSALS", "is_explained"]

REFUSALS = (
    ChangesNotConserved,
    ConflictingCopies,
    DataTopicChanged,
    SegmentDamaged,
    StreamPartitionIncomplete,
    TransactionIncomplete,
)
"""A restart refuses again."""


def is_explained(world: World, error: ConsumerError) -> bool:
    """Whether damage that the run has done to the gate's rows explains an error."""
    damage, losses = world.checkpoint.damage, world.checkpoint.losses
    match error:
        case ConflictingCopies():
            return world.copies.are_damaged
        case DataTopicChanged() | ChangesNotConserved():
            # A replay follows its plan, and what it reads of the new topic is something else.
            return any(map(world.ground.has_changed, world.data_topics))
        case StreamPartitionIncomplete():
            return losses is not None and error.fields["origin"] in losses.origins
        case TransactionIncomplete():
            return losses is not None and losses.transaction == error.fields["transaction"]
        case _:
            return damage is not None and damage.is_done
