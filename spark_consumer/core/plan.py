"""The plan of batch N: every decision about it, stored before its first effect.

A replay executes the plan it finds and decides nothing again, so that a compaction, a new schema or
a changed setting between two attempts cannot change batch N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from tidegate.lineage.frontier import EndOffsets
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.batch_state import (
    Segment,
    TopicIds,
    end_offsets_from_json,
    end_offsets_to_json,
)
from tidegate.spark_consumer.core.file_names import frontiers_of_older_programs, require_known
from tidegate.spark_consumer.core.origin_ledger import ALL_AGREE, NO_NEWS, MarkerNews, OriginFaults
from tidegate.spark_consumer.core.proof import Mismatch
from tidegate.spark_consumer.core.sink_names import MIRRORS
from tidegate.spark_consumer.core.sums import RowSum, SegmentRead
from tidegate.spark_consumer.core.transactions import ALL_WHOLE, TransactionFaults
from tidegate.spark_consumer.errors import CheckpointMismatch

PLAN_FORMAT = 8
"""7 had no `joining`, 6 no `gaps`, 5 no `news`, 4 merged each release into the mirror.

3 had neither `cuts_us` nor `dropped_frontiers`, 2 no `fresh` either; all are still executed.

Version 1 is no longer executed.
"""

_OLDEST_FORMAT = 2


@dataclass(frozen=True, slots=True)
class ReleaseBounds:
    """Changes with `after_us` < commit timestamp <= `through_us`.

    `segments` are those that may hold some of them.  `is_small` says that its changes may be
    collected in the driver's memory.  `cuts_us` divides a large release into slices, each sorted
    by its own task: ascending commit timestamps that end the slices but the last.
    """

    number: int
    after_us: int
    through_us: int
    segments: tuple[str, ...]
    is_small: bool = False
    cuts_us: tuple[int, ...] = ()

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> ReleaseBounds:
        """Rebuild it from plain data."""
        segments, cuts_us = tuple(data["segments"]), tuple(data.get("cuts_us", ()))
        return cls(**{**data, "segments": segments, "cuts_us": cuts_us})

    @property
    def slices(self) -> tuple[tuple[int, int], ...]:
        """Bounds of the slices, as (after, through), in commit order; one if there is no cut."""
        return tuple(pairwise((self.after_us, *self.cuts_us, self.through_us)))


@dataclass(frozen=True, slots=True)
class Compaction:
    """Segments that are joined into one, without their released changes."""

    inputs: tuple[str, ...]
    output: Segment

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Compaction:
        """Rebuild it from plain data."""
        return cls(tuple(data["inputs"]), Segment.restore(data["output"]))

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        return {"inputs": list(self.inputs), "output": self.output.snapshot()}


@dataclass(frozen=True, slots=True)
class FreshRows:
    """The batch's own changes above the former watermark, as the plan counted them."""

    due_rows: int
    early: RowSum

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> FreshRows:
        """Rebuild it from plain data."""
        return cls(data["due_rows"], RowSum(**data["early"]))


@dataclass(frozen=True, slots=True)
class StoreDeadLetters:
    """Append records that are not changes to the table of dead letters.

    Without a release these are the batch's records without an order key; with a release, those of
    its records that cannot be decoded, which a plan cannot know before they are read.
    """

    rows: int
    release: int | None = None


@dataclass(frozen=True, slots=True)
class SetLateAside:
    """Write the batch's changes at or below the former watermark to the side table."""

    through_us: int
    rows: int


@dataclass(frozen=True, slots=True)
class WriteRelease:
    """Write a release to these sinks, one after the other, then its manifest.

    `mirror_at` is the release of the mirror if the mirror does not take this release.
    """

    bounds: ReleaseBounds
    sinks: tuple[str, ...]
    mirror_at: int | None = None
    transactions: TransactionFaults = ALL_WHOLE
    """The faulty transactions, for the manifest; none in a plan, which has not counted them."""
    origins: OriginFaults = ALL_AGREE
    """What contradicts the markers of stream partitions, likewise."""
    gaps: tuple[PartitionGap, ...] = ()
    """Accepted gaps that begin at or below its end, for the manifest; none in a plan's step."""

    @property
    def mismatches(self) -> int:
        """How many there are of both."""
        return self.transactions.number + self.origins.number

    @property
    def first_mismatches(self) -> tuple[Mismatch, ...]:
        """The first of them."""
        return (*(fault.mismatch() for fault in self.transactions.listed), *self.origins.listed)


@dataclass(frozen=True, slots=True)
class MergeMirror:
    """Merge the releases after `after` up to `through` into the mirrors in one merge.

    The `joining` mirrors take every release up to `through`.  Then the manifest of release
    `through` names the new cut.
    """

    after: int
    through: int
    joining: tuple[str, ...] = ()
    topics: tuple[TopicIds, ...] = ()
    """The schemas of these releases; empty in a plan."""


@dataclass(frozen=True, slots=True)
class StoreSegment:
    """Write the batch's changes within the segment's times, sorted, as that segment."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class CompactSegments:
    """Write the input segments' changes above `after_us`, sorted, as the output segment."""

    compaction: Compaction
    after_us: int
    reads: tuple[SegmentRead, ...] = ()
    """The read of each input; empty in a plan, which does not know the segments."""


Step: TypeAlias = (
    StoreDeadLetters | SetLateAside | WriteRelease | MergeMirror | StoreSegment | CompactSegments
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What batch N does; `steps` lists it in order."""

    format: int
    code: str
    """Version of the code that decided; another version executes the plan too."""
    prefix: str
    query_id: str
    batch: int
    end_offsets: EndOffsets
    after_us: int
    through_us: int
    slowest: str | None
    """Token that held the watermark back when the plan was made, if any is known."""
    stream_has_ended: bool
    late_rows: int
    releases: tuple[ReleaseBounds, ...]
    stored: tuple[Segment, ...]
    compaction: Compaction | None
    topics: tuple[TopicIds, ...]
    frontier: str
    sinks: tuple[str, ...]
    """Names of the sinks that each release is written to."""
    fresh: FreshRows | None = None
    """None if an older program made the plan."""
    change_bytes: int = 0
    """Bytes of key and value of a change, on average over this batch and those before it."""
    dropped_frontiers: tuple[str, ...] = ()
    """Files and folders of frontiers that this batch is the last to need."""
    repeated_rows: int = 0
    """Changes that were read again and are left out, since the adopted output has them."""
    adopts_through_us: int | None = None
    """As in the state that the plan leads to."""
    mirror_at: int | None = None
    """The release of the mirror before the batch; None: it takes each release."""
    merges: tuple[int, ...] = ()
    """The releases through which the batch merges the mirror, ascending, if not each."""
    decided_at_us: int | None = None
    """When that was decided, as a wall time; None where the mirror takes each release."""
    news: MarkerNews = NO_NEWS
    """The announcements and markers of stream partitions that the batch has read."""
    gaps: tuple[PartitionGap, ...] = ()
    """All accepted gaps that begin at or below `through_us`, by time."""
    joining: tuple[str, ...] = ()
    """Mirrors that take every release before the batch with the first of the merges."""
    dead_letters: int = 0
    """Records of the batch without an order key, where such are set aside."""

    @property
    def merged(self) -> tuple[int, ...]:
        """The releases that the mirror reaches in turn, while the plan is executed."""
        if self.mirror_at is None:
            return tuple(bounds.number for bounds in self.releases)
        return self.merges

    @property
    def steps(self) -> tuple[Step, ...]:
        """The effects, in the order in which they must happen; storing state N follows them."""
        steps: list[Step] = []
        if self.dead_letters:
            steps.append(StoreDeadLetters(self.dead_letters))
        if self.late_rows:
            steps.append(SetLateAside(self.after_us, self.late_rows))
        steps += self._release_steps()
        steps += [StoreSegment(segment) for segment in self.stored]
        if self.compaction is not None:
            steps.append(CompactSegments(self.compaction, self.through_us))
        return tuple(steps)

    def gaps_below(self, through_us: int) -> tuple[PartitionGap, ...]:
        """Return the accepted gaps that begin at or below a time."""
        return tuple(gap for gap in self.gaps if gap.from_us <= through_us)

    def gaps_within(self, bounds: ReleaseBounds) -> tuple[PartitionGap, ...]:
        """Return the accepted gaps that lie at least partly within a release's bounds."""
        below = self.gaps_below(bounds.through_us)
        return tuple(gap for gap in below if gap.until_us - 1 > bounds.after_us)

    def _release_steps(self) -> list[Step]:
        """Write each release; the mirror is among its sinks if it has all releases before it."""
        at = self.mirror_at
        if at is None:
            return [WriteRelease(bounds, self.sinks) for bounds in self.releases]
        other_sinks = tuple(name for name in self.sinks if name not in MIRRORS)
        joining = self.joining
        steps: list[Step] = []
        numbers = {bounds.number for bounds in self.releases}
        for through in self.merges:
            if through not in numbers:
                steps.append(MergeMirror(at, through, joining))
                at, joining = through, ()
        for bounds in self.releases:
            is_merged = bounds.number in self.merges
            if is_merged and at == bounds.number - 1:
                steps.append(WriteRelease(bounds, self.sinks))
            else:
                steps.append(WriteRelease(bounds, other_sinks, at))
                steps += [MergeMirror(at, bounds.number)] if is_merged else []
            at = bounds.number if is_merged else at
        return steps

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the plan contradicts itself."""
        # A joining mirror reaches a release that the other mirrors may have reached already.
        lowest = 0 if self.mirror_at is None else self.mirror_at - bool(self.joining)
        invariant(
            all(low < high for low, high in pairwise((lowest, *self.merges)))
            if self.mirror_at is not None
            else not self.merges and not self.joining,
            "the merges of the mirror are out of order",
            batch=self.batch,
            mirror_at=self.mirror_at,
            merges=self.merges,
        )
        invariant(
            self.after_us <= self.through_us,
            "a plan's watermark moves backwards",
            after_us=self.after_us,
            through_us=self.through_us,
        )
        edges = [(bounds.after_us, bounds.through_us) for bounds in self.releases]
        lows = [self.after_us, *(high for _, high in edges)]
        invariant(
            not edges or ([low for low, _ in edges] == lows[:-1] and lows[-1] == self.through_us),
            "releases do not cover what is due without gaps",
            batch=self.batch,
            releases=edges,
        )
        invariant(
            all(low < high for low, high in edges),
            "a release's bounds are empty",
            batch=self.batch,
            releases=edges,
        )
        invariant(
            all(low < high for bounds in self.releases for low, high in bounds.slices),
            "a release's cuts are out of order or outside its bounds",
            batch=self.batch,
            cuts=[bounds.cuts_us for bounds in self.releases],
        )
        cuts = [(segment.min_us, segment.max_us) for segment in self.stored]
        highs = [self.through_us, *(high for _, high in cuts)]
        invariant(
            all(before < low <= high for before, (low, high) in zip(highs, cuts, strict=False)),
            "segments overlap each other or what is released",
            batch=self.batch,
            segments=cuts,
        )

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        content = {**asdict(self), "end_offsets": end_offsets_to_json(self.end_offsets)}
        content["stored"] = [segment.snapshot() for segment in self.stored]
        if self.compaction is not None:
            content["compaction"] = self.compaction.snapshot()
        if not self.repeated_rows and self.adopts_through_us is None:
            # An older program knows neither.
            del content["repeated_rows"], content["adopts_through_us"]
        if not self.dead_letters:
            del content["dead_letters"]
        return content

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Plan:
        """Rebuild the plan of a snapshot, also one that the program before this one stored.

        Raises NewerCheckpoint for a plan that a newer program stored, and CheckpointMismatch for
        one that is too old.
        """
        number = require_known("plan", data, newest=PLAN_FORMAT)
        if number < _OLDEST_FORMAT:
            raise CheckpointMismatch(
                "a plan was stored by another version of Tidegate, in another format",
                hint=(
                    "Finish the batch with that version, or start with a new checkpoint and output"
                ),
                found=number,
                expected=PLAN_FORMAT,
            )
        compaction, fresh = data["compaction"], data.get("fresh")
        dropped = data.get("dropped_frontiers")
        if dropped is None:
            dropped = frontiers_of_older_programs(data["batch"])
        return cls(
            **{
                **data,
                "format": PLAN_FORMAT,
                "dropped_frontiers": tuple(dropped),
                "fresh": None if fresh is None else FreshRows.restore(fresh),
                "end_offsets": end_offsets_from_json(data["end_offsets"]),
                "releases": tuple(ReleaseBounds.restore(bounds) for bounds in data["releases"]),
                "stored": tuple(Segment.restore(segment) for segment in data["stored"]),
                "compaction": None if compaction is None else Compaction.restore(compaction),
                "topics": tuple(TopicIds.restore(topic) for topic in data["topics"]),
                "sinks": tuple(data["sinks"]),
                "joining": tuple(data.get("joining", ())),
                "merges": tuple(data.get("merges", ())),
                "gaps": tuple(PartitionGap(**gap) for gap in data.get("gaps", ())),
                "news": MarkerNews.restore(data["news"]) if "news" in data else NO_NEWS,
            }
        )
