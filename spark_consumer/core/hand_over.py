"""Handing a batch's changes over before they are released: what the order mode `key` does.

The effect stands before the first step of the plan.  The plan is stored by then, and a replay finds
it, so that the same sinks get the same changes under the same number, however often the batch is
repeated.  It waits for no watermark: each change is handed over by the batch that reads it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.errors import ChangesNotConserved

CHANGELOG_BY_KEY = "changelog_by_key"
"""Name of the sink that appends each batch's changes to Delta tables."""

MIRROR_BY_KEY = "mirror_by_key"
"""Name of the sink that merges each batch's changes into Delta tables, the newest per row."""

PARQUET_BY_KEY = "parquet_by_key"
"""Name of the sink that writes each batch's changes as Parquet files."""

BY_KEY = (CHANGELOG_BY_KEY, MIRROR_BY_KEY, PARQUET_BY_KEY)
"""The sinks of the settings that take batches: what they write has the numbers of batches."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hand all changes that the batch has read to these sinks, one sink after the other."""

    sinks: tuple[str, ...]
    rows: int | None
    """How many changes the plan has counted; None where it is an older program's.

    Those that cannot be decoded are among them: that is not known before they are decoded.
    """


def hand_over(plan: Plan, takers: Collection[str]) -> tuple[HandOver, ...]:
    """Return the effect of a plan; none if it has no change, or no sink that takes batches.

    `takers` are the sinks of this run that do.  One that the plan does not name begins with the
    next batch: what it got now, a replay by a run without it would not repeat.
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
