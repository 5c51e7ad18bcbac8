"""A worker that moves stream partitions past changes that have expired, and reads nothing.

Its one transaction holds a `PartitionGap` for each of them and the heartbeats of their slots, in
which they stand behind the gap.  The gaps come from outside: only Spanner knows what can be read.
"""

from __future__ import annotations

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.now import Now
from tidegate.producer.core.sole_worker import SoleWorker
from tidegate.producer.errors import GapNotAccepted
from tidegate.schemas.progress import PartitionGap
from tidegate.schemas.topics import slot_of


class GapAcceptingWorker(SoleWorker):
    """The decisions of the one worker that writes accepted gaps, at `GapsAccepted`."""

    def _failure(self, reason: str, **fields: object) -> GapNotAccepted:
        return GapNotAccepted(reason, **fields)

    def _handle(self, event: on.Event, now: Now) -> list[do.Effect]:
        if isinstance(event, on.GapsAccepted):
            return self._accept(event.gaps)
        return super()._handle(event, now)

    def _accept(self, gaps: tuple[PartitionGap, ...]) -> list[do.Effect]:
        """Begin the transaction, over the slots of the gaps.

        A position that is not the one before its gap has moved since the gap was found: another run
        has accepted it, or the stream partition was read on.
        """
        if not self.is_ready or self._cycle.open is not None:
            return [self._failed("a slot is not owned")]
        for gap in gaps:
            partition = self.slots[slot_of(gap.token, self._identity.slots)].tokens.get(gap.token)
            position_us = None if partition is None else partition.published.watermark_us
            if position_us != gap.from_us - 1:
                reason = "the position of a stream partition has moved"
                position = {"expected_us": gap.from_us - 1, "found_us": position_us}
                return [do.Stop(self._failure(reason, token=gap.token, **position))]
        for gap in gaps:
            self.slots[slot_of(gap.token, self._identity.slots)].pass_gap(gap)
        return self._cycle.begin_past_gaps(gaps, self._writer)
