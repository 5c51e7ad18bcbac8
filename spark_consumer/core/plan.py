"""The plan of batch N: everything that was decided about it, written before its first effect.

A replay obeys the plan it finds and decides nothing again, so that compaction, a new schema or a
changed setting between two attempts cannot change what batch N is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.spark_consumer.core.batch_state import (
    Segment,
    TopicIds,
    end_offsets_from_json,
    end_offsets_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spark_consumer.core.frontier import EndOffsets

__all__ = [
    "PLAN_FORMAT",
    "CompactSegments",
    "Compaction",
    "Plan",
    "ReleaseBounds",
    "SetLateAside",
    "Step",
    "StoreSegment",
    "WriteRelease",
]

PLAN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ReleaseBounds:
    """Changes with `after_us` < commit timestamp <= `through_us`.

    `segments` are those that may hold some of them.
    """

    number: int
    after_us: int
    through_us: int
    segments: tuple[str, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReleaseBounds:
        """Rebuild it from plain data."""
        return cls(**{**data, "segments": tuple(data["segments"])})


@dataclass(frozen=True, slots=True)
class Compaction:
    """Segments that become one; what is released already is left behind."""

    inputs: tuple[str, ...]
    output: Segment

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Compaction:
        """Rebuild it from plain data."""
        return cls(tuple(data["inputs"]), Segment.from_json(data["output"]))


@dataclass(frozen=True, slots=True)
class SetLateAside:
    """Write the batch's changes at or below the former watermark to the side table."""

    through_us: int
    rows: int


@dataclass(frozen=True, slots=True)
class WriteRelease:
    """Write a release to every sink in turn, then its manifest."""

    bounds: ReleaseBounds


@dataclass(frozen=True, slots=True)
class StoreSegment:
    """Write the batch's changes within the segment's times, sorted, as that segment."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class CompactSegments:
    """Write what is above `after_us` in the input segments, sorted, as the output segment."""

    compaction: Compaction
    after_us: int


Step: TypeAlias = SetLateAside | WriteRelease | StoreSegment | CompactSegments


@dataclass(frozen=True, slots=True)
class Plan:
    """What batch N does; `steps` gives it in order."""

    format: int
    code: str
    """Version of the code that decided; another version obeys all the same."""
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

    @property
    def steps(self) -> tuple[Step, ...]:
        """The effects, in the order in which they must happen; state N follows them."""
        steps: list[Step] = []
        if self.late_rows:
            steps.append(SetLateAside(self.after_us, self.late_rows))
        steps += [WriteRelease(bounds) for bounds in self.releases]
        steps += [StoreSegment(segment) for segment in self.stored]
        if self.compaction is not None:
            steps.append(CompactSegments(self.compaction, self.through_us))
        return tuple(steps)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `from_json`."""
        return {**asdict(self), "end_offsets": end_offsets_to_json(self.end_offsets)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Rebuild what `to_json` gave."""
        compaction = data["compaction"]
        return cls(
            **{
                **data,
                "end_offsets": end_offsets_from_json(data["end_offsets"]),
                "releases": tuple(ReleaseBounds.from_json(bounds) for bounds in data["releases"]),
                "stored": tuple(Segment.from_json(segment) for segment in data["stored"]),
                "compaction": None if compaction is None else Compaction.from_json(compaction),
                "topics": tuple(TopicIds.from_json(topic) for topic in data["topics"]),
            }
        )
