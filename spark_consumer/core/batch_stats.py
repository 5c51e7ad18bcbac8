"""Figures of a batch's changes: all that the gate must know of them to plan the batch."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.release import NO_CHANGES, Distribution


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Counts of a batch's data rows against the former and the new watermark."""

    late_rows: int = 0
    """At or below the former watermark."""
    due: Distribution = NO_CHANGES
    """Above the former, at or below the new watermark."""
    early: Distribution = NO_CHANGES
    """Above the new watermark."""
    early_checksum: int = 0
    """The checksum of the rows above the new watermark."""
    early_min_us: int | None = None
    early_max_us: int | None = None
    topics: tuple[TopicIds, ...] = ()
    """The schema ids that occur in the batch."""
    unordered_rows: int = 0
    """Rows without an order key in their first header."""
    unordered_at: str = ""
    """Topic, topic partition and offset of one of them."""
    dead_letters: int = 0
    """Rows that are to be set aside as dead letters instead: none of them is counted elsewhere."""

    @property
    def rows(self) -> int:
        """All data rows of the batch."""
        ordered = self.late_rows + self.due.rows + self.early.rows
        return ordered + self.unordered_rows + self.dead_letters
