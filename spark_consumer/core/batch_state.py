"""The state that batch N leaves for batch N + 1: it names segments and holds no rows.

State N is the last file that batch N writes; it follows from state N - 1 and plan N alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from tidegate.lineage.frontier import EndOffsets
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.file_names import (
    folder_of,
    frontiers_of_older_programs,
    require_known,
)
from tidegate.spark_consumer.core.origin_ledger import NOTHING_FOLLOWED, OriginLedger
from tidegate.spark_consumer.core.part_log import (
    ALL_IN_THE_STATE,
    SegmentList,
    read_named,
)
from tidegate.spark_consumer.core.sums import RowSum

BEFORE_EVERYTHING_US = -1
"""The watermark before the first one: no change has a commit time at or below it."""

STATE_FORMAT = 8
"""The format of `State.snapshot`; 7 had no `begins`, 6 no `gaps`, 5 no `origins`.

4 had no `mismatches` either.

3 had all segments in the state and every release in the mirror.  2 had no `dropped_frontiers` and
adopted no output.  1 had no number, and its segments were not counted.
"""

_PARTS_MAX = 16
"""A release reads at most two parts of a segment that lie partly outside its bounds."""


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The changes of a segment up to a commit timestamp, above those of the part before it."""

    through_us: int
    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Changes that wait for the watermark, sorted by order key, in one file.

    All lie within `min_us` and `max_us`; those at or below the state's watermark are already
    released.  `quantiles_us` cuts the rows, as first written, into parts of about equal size.  In a
    plan `rows` is an estimate, `parts` is empty and the name lacks the writer.  `size_bytes` is
    at least that of all keys and values; None in states of an older program.
    """

    name: str
    min_us: int
    max_us: int
    rows: int
    quantiles_us: tuple[int, ...]
    parts: tuple[SegmentPart, ...] = ()
    """The written rows, up to `max_us`; empty if an older program wrote the segment, uncounted."""
    size_bytes: int | None = None

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Segment:
        """Rebuild a segment from plain data."""
        parts = tuple(SegmentPart(*part) for part in data.get("parts", ()))
        return cls(**{**data, "quantiles_us": tuple(data["quantiles_us"]), "parts": parts})

    @property
    def cuts_us(self) -> tuple[int, ...]:
        """Commit timestamps that end the parts in which the segment is counted; the last ends it.

        They follow from the plan alone, so that every run that writes it counts the same parts.
        """
        inside = sorted({us for us in self.quantiles_us if self.min_us <= us < self.max_us})
        chosen = min(len(inside), _PARTS_MAX - 1)
        cuts = [inside[(n + 1) * len(inside) // (chosen + 1)] for n in range(chosen)]
        return (*dict.fromkeys(cuts), self.max_us)

    def written(self, sums: Sequence[RowSum]) -> Segment:
        """Return this planned segment as it was written, with a sum for each part."""
        parts = tuple(
            SegmentPart(us, part.rows, part.checksum)
            for us, part in zip(self.cuts_us, sums, strict=True)
        )
        return replace(self, rows=sum(row_sum.rows for row_sum in sums), parts=parts)

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        parts = [[part.through_us, part.rows, part.checksum] for part in self.parts]
        return {**asdict(self), "parts": parts}


@dataclass(frozen=True, slots=True)
class TopicIds:
    """The schema ids that a topic's records have carried so far, ascending: ids only grow."""

    topic: str
    key_ids: tuple[int, ...]
    value_ids: tuple[int, ...]

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> TopicIds:
        """Rebuild it from plain data."""
        return cls(data["topic"], tuple(data["key_ids"]), tuple(data["value_ids"]))


@dataclass(frozen=True, slots=True)
class OutputProof:
    """The proven end of an output: release `release` is whole in all of its tables.

    `begun_through_us` is the end of the next release if some tables have it already; no table has a
    later change.  `complete_from_us` is the newest manifest's.  `mirror_release` is the release
    that its mirrors have reached, which ended at `mirror_through_us`; None: `release`.
    """

    query_id: str
    release: int
    through_us: int
    sinks: tuple[str, ...]
    begun_through_us: int | None = None
    complete_from_us: int | None = None
    mirror_release: int | None = None
    mirror_through_us: int | None = None

    @property
    def needs_after_us(self) -> int:
        """Changes after this commit time must be in Kafka: they, or their schemas, are needed."""
        return self.through_us if self.mirror_through_us is None else self.mirror_through_us


@dataclass(frozen=True, slots=True)
class State:
    """The facts that batch N + 1 needs about batch N and all batches before it."""

    prefix: str
    query_id: str
    batch: int = -1
    watermark_us: int = BEFORE_EVERYTHING_US
    next_release: int = 0
    stream_has_ended: bool = False
    late_rows: int = 0
    """Late changes over all batches; each is in the side table."""
    end_offsets: EndOffsets | None = None
    frontier: str | None = None
    """Name of the stored frontier; None before the first batch."""
    segments: tuple[Segment, ...] = ()
    dropped_segments: tuple[str, ...] = ()
    """Segments that this batch was the last to need."""
    topics: tuple[TopicIds, ...] = ()
    sinks: tuple[str, ...] = ()
    """Names of the sinks of the query."""
    waiting_rows: int | None = 0
    """Changes above the watermark in all segments; None if an older program left it unknown."""
    code: str = ""
    """Version of the program that stored the state."""
    change_bytes: int = 0
    """Bytes of key and value of a change, on average; 0 if it is not known."""
    dropped_frontiers: tuple[str, ...] = ()
    """Files and folders of frontiers that this batch was the last to need."""
    format: int = STATE_FORMAT
    adopts_through_us: int | None = None
    """The output was adopted, and this checkpoint reads again what was released up to its
    watermark.  Nothing is released before the watermark of the read records has reached this time,
    at which the first release ends if the watermark is above it.  None: everything is read."""
    listed: SegmentList = ALL_IN_THE_STATE
    """The files of the segments that are not in the state's own file."""
    dropped_lists: tuple[str, ...] = ()
    """Folders of stored segments' names and figures that this batch was the last to need."""
    mirror_release: int | None = None
    """The release that all mirrors have reached; None: the newest one."""
    mirror_merged_at_us: int | None = None
    """Wall time of the decision to merge them last; None where they take each release."""
    mismatches: int = 0
    """What releases hold although it contradicts their own figures, over all batches since this
    is counted."""
    origins: OriginLedger = NOTHING_FOLLOWED
    """The released sums of the stream partitions that are followed to their end."""
    origins_file: str | None = None
    """The file that holds it; None if that is the state's own."""
    gaps: tuple[PartitionGap, ...] = ()
    """All accepted gaps that begin at or below the watermark, by time."""
    begins: Mapping[str, int] = field(default_factory=dict)
    """The first release of each sink that joined later and does not have those before it."""
    copies: int = 0
    """Records that releases left out because they repeat a change, over all batches.

    Counted since the first program that counts them; not stored while it is 0.
    """
    dead_letters: int = 0
    """Records that were set aside because they are not changes, over all batches."""

    @classmethod
    def adopted(cls, *, prefix: str, query_id: str, proof: OutputProof, code: str) -> State:
        """Return the state before batch 0 of a new checkpoint that continues an output."""
        return cls(
            prefix=prefix,
            query_id=query_id,
            watermark_us=proof.through_us,
            next_release=proof.release + 1,
            sinks=proof.sinks,
            code=code,
            adopts_through_us=proof.begun_through_us or proof.through_us,
            mirror_release=proof.mirror_release,
            origins=OriginLedger(proof.through_us),
        )

    @property
    def list_folders(self) -> frozenset[str]:
        """The folders of the files that the state names; killed runs may have left files there."""
        origins_folder = () if self.origins_file is None else (folder_of(self.origins_file),)
        return self.listed.folders.union(origins_folder)

    @property
    def mirrored(self) -> int:
        """The release that all mirrors have reached; -1 before the first one."""
        return self.next_release - 1 if self.mirror_release is None else self.mirror_release

    @property
    def is_settled(self) -> bool:
        """Whether no change waits for the watermark, nor a release for the mirrors.

        The next batches then only store a later frontier, until a change comes.
        """
        return (
            self.watermark_us > BEFORE_EVERYTHING_US
            and not self.segments
            and self.mirror_release is None
            and self.adopts_through_us is None
        )

    def moved_to(self, end_offsets: EndOffsets) -> dict[str, int]:
        """Return, by topic, how many offsets lie between the state's ends and these."""
        before = self.end_offsets or {}
        return {
            topic: sum(end - before.get(topic, {}).get(place, 0) for place, end in ends.items())
            for topic, ends in end_offsets.items()
        }

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the state contradicts itself."""
        names = [segment.name for segment in self.segments]
        invariant(len(set(names)) == len(names), "a state names a segment twice", names=names)
        invariant(
            not set(names) & set(self.dropped_segments),
            "a segment is both kept and dropped",
            batch=self.batch,
        )
        for segment in self.segments:
            invariant(
                segment.min_us <= segment.max_us and segment.max_us > self.watermark_us,
                "a segment has nothing left to release",
                segment=segment.name,
                watermark_us=self.watermark_us,
            )
            cuts = [segment.min_us - 1, *(part.through_us for part in segment.parts)]
            invariant(
                not segment.parts
                or (cuts[-1] == segment.max_us and all(a < b for a, b in pairwise(cuts))),
                "a segment's parts do not cover it",
                segment=segment.name,
                cuts=cuts,
            )
        invariant(
            self.mirror_release is None or self.mirror_release < self.next_release - 1,
            "the mirror is ahead of the releases",
            mirror_release=self.mirror_release,
            next_release=self.next_release,
        )
        for topic in self.topics:
            ascending = all(
                ids == tuple(sorted(set(ids))) for ids in (topic.key_ids, topic.value_ids)
            )
            invariant(ascending, "schema ids are out of order", topic=topic.topic)

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        offsets = None if self.end_offsets is None else end_offsets_to_json(self.end_offsets)
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {"end_offsets": offsets, "topics": [asdict(topic) for topic in self.topics]}
        content |= self.listed.rest(self.segments)
        content["gaps"] = [asdict(gap) for gap in self.gaps]
        del content["listed"]
        content["origins"] = self.origins.snapshot() if self.origins_file is None else None
        if self.adopts_through_us is None:
            del content["adopts_through_us"]
        if not self.copies:
            del content["copies"]
        if not self.dead_letters:
            del content["dead_letters"]
        return content

    @classmethod
    def restore(
        cls,
        data: Mapping[str, Any],
        read: Callable[[str], Mapping[str, Any] | None] = lambda _file: None,
    ) -> State:
        """Rebuild a state from its `snapshot`, also of older programs; `read` reads its files.

        Raises NewerCheckpoint for a state that a newer program stored, CheckpointMismatch if a file
        that it names is missing.
        """
        number = require_known("state", data, newest=STATE_FORMAT)
        if number == 1:
            # Its segments were not counted.
            waiting_rows = None if data["segments"] else 0
            data = {**data, "waiting_rows": waiting_rows}
        offsets = data["end_offsets"]
        dropped = data.get("dropped_frontiers")
        if dropped is None:
            dropped = frontiers_of_older_programs(data["batch"])
        listed, segments = SegmentList.restore(data, read)
        origins = OriginLedger(data["watermark_us"])
        if "origins" in data:
            file = data["origins_file"]
            content = data["origins"] if file is None else read_named(file, data["batch"], read)
            origins = OriginLedger.restore(content)
        elsewhere = ("removed_segments", "segment_parts")
        return cls(
            **{
                **{name: value for name, value in data.items() if name not in elsewhere},
                "format": STATE_FORMAT,
                "dropped_frontiers": tuple(dropped),
                "end_offsets": None if offsets is None else end_offsets_from_json(offsets),
                "segments": tuple(Segment.restore(segment) for segment in segments),
                "listed": listed,
                "origins": origins,
                "dropped_lists": tuple(data.get("dropped_lists", ())),
                "dropped_segments": tuple(data["dropped_segments"]),
                "topics": tuple(TopicIds.restore(topic) for topic in data["topics"]),
                "sinks": tuple(data["sinks"]),
                "gaps": tuple(PartitionGap(**gap) for gap in data.get("gaps", ())),
            }
        )


def end_offsets_to_json(offsets: EndOffsets) -> dict[str, dict[str, int]]:
    """Return end offsets with text keys, as JSON has them."""
    return {
        topic: {str(topic_partition): offset for topic_partition, offset in ends.items()}
        for topic, ends in offsets.items()
    }


def end_offsets_from_json(data: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    """Rebuild what `end_offsets_to_json` gave."""
    return {
        topic: {int(topic_partition): offset for topic_partition, offset in ends.items()}
        for topic, ends in data.items()
    }
