"""Acceptances of gaps that are broken on purpose: what is given up, and who says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.lineage.slot_view import SlotView
from tidegate.producer.core.accepted_gaps import GapAcceptingWorker
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.slot import Slot
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.gate import Gate
from tidegate.spark_consumer.core.plan import Plan

__all__ = ["BROKEN_GAPS"]

_MORE_US = 3_600_000_000


def _write_no_gap(self: ProgressWriter, gap: PartitionGap, *, slot: int) -> list[Any]:
    return []


_gap = ProgressWriter.gap


def _write_twice(self: ProgressWriter, gap: PartitionGap, *, slot: int) -> list[Any]:
    return [*_gap(self, gap, slot=slot), *_gap(self, gap, slot=slot)]


_pass_gap = Slot.pass_gap


def _pass_more(self: Slot, gap: PartitionGap) -> None:
    _pass_gap(self, replace(gap, until_us=gap.until_us + _MORE_US))


def _pass_nothing(self: Slot, gap: PartitionGap) -> None:
    self.heartbeat.change(gap.token, self.tokens[gap.token])


_accept = GapAcceptingWorker._accept


def _accept_where_it_stands(self: GapAcceptingWorker, gaps: tuple[PartitionGap, ...]) -> Any:
    """Take the position as it is found, whatever was asked for."""
    tokens = {token: one for slot in self.slots.values() for token, one in slot.tokens.items()}
    moved = tuple(
        replace(
            gap,
            from_us=tokens[gap.token].published.watermark_us + 1,
            until_us=max(gap.until_us, tokens[gap.token].published.watermark_us + 2),
        )
        for gap in gaps
    )
    return _accept(self, moved)


_items_since = SlotView.items_since


def _forget_gaps(self: SlotView, mark: Any) -> Iterator[list[Any]]:
    return (item for item in _items_since(self, mark) if item[0] != "gap")


def _name_no_gaps(self: Plan, through_us: int) -> tuple[PartitionGap, ...]:
    return ()


_decide = Gate.decide


def _plan_without_gaps(self: Gate, *args: Any, **options: Any) -> Any:
    return replace(_decide(self, *args, **options), gaps=())


BROKEN_GAPS = (
    Mutant(
        "a gap passed and not recorded",
        "nothing_lost",
        ((ProgressWriter, "gap", _write_no_gap),),
    ),
    Mutant(
        "a gap recorded twice",
        "accepted_gaps",
        ((ProgressWriter, "gap", _write_twice),),
    ),
    Mutant(
        "more passed than the gap",
        "nothing_lost",
        ((Slot, "pass_gap", _pass_more),),
    ),
    Mutant(
        "a gap recorded and not passed",
        "accepted_gaps",
        ((Slot, "pass_gap", _pass_nothing),),
    ),
    Mutant(
        "a gap accepted although the position has moved",
        "accepted_gaps",
        ((GapAcceptingWorker, "_accept", _accept_where_it_stands),),
    ),
    Mutant(
        "gaps that the stored frontier forgets",
        "soundness",
        ((SlotView, "items_since", _forget_gaps),),
    ),
    Mutant(
        "manifests that name no gaps",
        "accepted_gaps",
        ((Plan, "gaps_below", _name_no_gaps),),
    ),
    Mutant(
        "a plan without gaps",
        "accepted_gaps",
        ((Gate, "decide", _plan_without_gaps),),
    ),
)
