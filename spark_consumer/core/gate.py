"""The gate's decisions, in the order in which a batch needs them.

    take(progress rows, end offsets)    a portion of the slots' records
    close()                             the new watermark
    decide(stats of the data rows)      the plan
    after(state, plan)                  the state that the executed plan leads to

Everything is a function of state N - 1, its frontier, and the rows and end offsets of batch N.
`batch_run` calls them and stores what must be stored in between.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.frontier import (
    EndOffsets,
    Frontier,
    ProgressRow,
    Watermark,
)
from tidegate.schemas.errors import InvariantViolation, invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.output_form import Envelope, recorded_form
from tidegate.schemas.progress import StreamStarted
from tidegate.spark_consumer.core.batch_state import (
    BEFORE_EVERYTHING_US,
    Segment,
    State,
    TopicIds,
)
from tidegate.spark_consumer.core.cadence import merges_due
from tidegate.spark_consumer.core.limits import Limits, average_bytes
from tidegate.spark_consumer.core.origin_ledger import NewsReader
from tidegate.spark_consumer.core.plan import PLAN_FORMAT, FreshRows, Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import (
    BatchStats,
    compaction_of,
    releases_of,
    segments_of,
)
from tidegate.spark_consumer.core.release_check import ENTRIES_MAX
from tidegate.spark_consumer.core.sink_names import CHANGELOG, MIRRORS
from tidegate.spark_consumer.core.sink_set import (
    joining_mirrors,
    sinks_now,
)
from tidegate.spark_consumer.core.sums import RowSum
from tidegate.spark_consumer.errors import (
    BAD_RECORD_HINT,
    CheckpointMismatch,
    DataTopicChanged,
    UnorderedChange,
    UnreadableEnvelope,
)


class Gate:
    """Decides one batch; each batch has its own."""

    def __init__(
        self,
        state: State,
        frontier: Frontier,
        *,
        limits: Limits,
        code: str,
        sinks: Sequence[str] | None = None,
    ) -> None:
        """Start batch `state.batch + 1` with the frontier that the state names.

        `sinks` are those of the query from now on; None: those of the state.
        """
        self._state = state
        self._frontier = frontier
        self._limits = limits
        self._code = code
        self._sinks = sinks_now(state, state.sinks if sinks is None else sinks)
        self._joining = joining_mirrors(state, self._sinks)
        self._end_offsets: EndOffsets | None = None
        self._taken: dict[int, int] = {}
        self._through_us = state.watermark_us
        self._slowest: str | None = None
        self._has_ended = state.stream_has_ended
        self._adopts_through_us = state.adopts_through_us
        self._news = NewsReader(after_us=state.watermark_us, items_max=ENTRIES_MAX)

    @property
    def frontier(self) -> Frontier:
        """The frontier, after `close` that of this batch."""
        return self._frontier

    def require_topics(self, ids: Mapping[str, str | None]) -> None:
        """Raise DataTopicChanged for a recorded data topic that now has another id, or none.

        The offsets of a re-created topic do not refer to the records of the former topic.
        """
        for topic, recorded in sorted(self._frontier.topic_ids.items()):
            topic_id = ids.get(topic, recorded)
            if topic_id != recorded:
                happened = "deleted" if topic_id is None else "re-created"
                raise DataTopicChanged(
                    f"a data topic was {happened} after the stream began",
                    hint="Its changes are gone: reset the stream, and start with a new output",
                    topic=topic,
                    recorded_id=recorded,
                    found_id=topic_id,
                )

    def take(self, rows: Iterable[ProgressRow], *, end_offsets: EndOffsets) -> None:
        """Take a portion of the batch's progress rows.

        Raises ProtocolError where the records contradict the protocol, CheckpointMismatch if the
        end offsets are below those of the batch before, UnreadableEnvelope for a stream whose
        values are made for other programs, InvariantViolation for a row that a former portion
        should have held.
        """
        if self._end_offsets is None:
            _require_growth(self._state.end_offsets or {}, end_offsets)
        self._end_offsets = end_offsets
        portion = tuple(rows)
        require_readable(portion)
        self._require_same_stream(portion)
        for row in portion:
            invariant(
                row.offset > self._taken.get(row.slot, -1),
                "progress rows were not read in the order of their offsets",
                slot=row.slot,
                offset=row.offset,
            )
        for row in self._frontier.fold(portion, reached=end_offsets):
            self._taken[row.slot] = row.offset
            self._news.take(row.record.body)
        self._frontier.check_invariants()

    def close(self) -> int:
        """Return the new watermark, after the last portion; never below the former one.

        Raises ProtocolError where the records contradict the protocol.
        """
        watermark = self._frontier.watermark()
        adopts_us = self._state.adopts_through_us
        if adopts_us is not None and (watermark is None or watermark.us < adopts_us):
            self._slowest = None if watermark is None else watermark.slowest
            return self._through_us
        self._adopts_through_us = None
        self._require_no_fall(watermark)
        if watermark is not None:
            self._through_us = watermark.us
            self._slowest = watermark.slowest
            self._has_ended = watermark.slowest is None
        return self._through_us

    def _require_same_stream(self, rows: Iterable[ProgressRow]) -> None:
        """Raise CheckpointMismatch if the stream began after the end of an adopted output."""
        if self._state.adopts_through_us is None:
            return
        through_us = self._state.watermark_us
        for row in rows:
            body = row.record.body
            if isinstance(body, StreamStarted) and body.start_ns > (through_us + 1) * NS_PER_US:
                raise CheckpointMismatch(
                    "the stream began after the end of the adopted output",
                    hint="Changes between the two are missing: start with a new output",
                    adopted_through_us=through_us,
                    start_ns=body.start_ns,
                )

    def _require_no_fall(self, watermark: Watermark | None) -> None:
        """Raise ProtocolError if the watermark is below the former one, or is no longer known.

        Offsets only grow, a snapshot in effect gives way to a higher revision only, and an
        announcement's start - 1 is never below its parent's watermark: no correct fleet lowers it.
        """
        before_us = self._state.watermark_us
        if before_us == BEFORE_EVERYTHING_US or (watermark and watermark.us >= before_us):
            return
        raise ProtocolError(
            "the watermark moved backwards: the progress topic contradicts earlier records",
            hint="Find out who writes to the progress topic; then reset the stream",
            was_us=before_us,
            is_us=None if watermark is None else watermark.us,
            slowest=None if watermark is None else watermark.slowest,
        )

    def decide(
        self, stats: BatchStats, *, frontier: str, dropped: tuple[str, ...] = (), now_us: int = 0
    ) -> Plan:
        """Return the plan of the batch; `close` comes first.

        `frontier` is the name of the batch's frontier, `dropped` are the earlier frontiers' files
        that no later frontier needs.  `now_us` is the wall time, for the cadence of the mirror.

        Raises UnorderedChange for a row without order key, ProtocolError for a key schema that the
        epoch does not have.
        """
        state, limits = self._state, self._limits
        end_offsets = self._end_offsets
        if end_offsets is None:
            raise InvariantViolation("decide() was called before take()")
        if stats.unordered_rows:
            raise UnorderedChange(
                "a data topic holds records without an order key",
                hint=BAD_RECORD_HINT,
                rows=stats.unordered_rows,
                first=stats.unordered_at,
            )
        batch = state.batch + 1
        is_adopting = state.adopts_through_us is not None
        releases = self._releases(stats)
        stored: tuple[Segment, ...] = ()
        if stats.early.rows and stats.early_min_us is not None:
            stored = segments_of(
                stats.early,
                batch=batch,
                min_us=stats.early_min_us,
                max_us=stats.early_max_us or stats.early_min_us,
                rows_max=limits.segment_rows_max,
                bytes_max=limits.release_bytes_max,
            )
        surviving = tuple(s for s in state.segments if s.max_us > self._through_us)
        compaction = compaction_of(
            surviving,
            batch=batch,
            segments_max=limits.segments_max,
            rows_max=limits.compaction_rows_max,
        )
        topics = self._merged(stats.topics)
        merges = self._merges(releases, topics, now_us=now_us)
        return Plan(
            format=PLAN_FORMAT,
            code=self._code,
            prefix=state.prefix,
            query_id=state.query_id,
            batch=batch,
            end_offsets=end_offsets,
            after_us=state.watermark_us,
            through_us=self._through_us,
            slowest=self._slowest,
            stream_has_ended=self._has_ended,
            late_rows=0 if is_adopting else stats.late_rows,
            releases=releases,
            stored=stored,
            compaction=compaction,
            topics=topics,
            sinks=self._sinks,
            joining=self._joining,
            frontier=frontier,
            dropped_frontiers=dropped,
            change_bytes=average_bytes(
                state.change_bytes,
                rows=stats.due.rows + stats.early.rows,
                size_bytes=(stats.due.size_bytes or 0) + (stats.early.size_bytes or 0),
            ),
            fresh=FreshRows(stats.due.rows, RowSum(stats.early.rows, stats.early_checksum)),
            repeated_rows=stats.late_rows if is_adopting else 0,
            adopts_through_us=self._adopts_through_us,
            mirror_at=None if merges is None else state.mirrored,
            merges=merges or (),
            decided_at_us=None if merges is None else now_us,
            news=self._news.news,
            gaps=tuple(gap for gap in self._frontier.gaps if gap.from_us <= self._through_us),
            dead_letters=stats.dead_letters,
        )

    def _merges(
        self, releases: Sequence[ReleaseBounds], topics: tuple[TopicIds, ...], *, now_us: int
    ) -> tuple[int, ...] | None:
        """Return the last releases of the mirror's merges; None: it takes each release.

        At the end of an adopted output the tables may hold a part of the next merge or release:
        each is then repeated alone, so that its incomplete rows are not set aside twice.
        """
        state, cadence = self._state, self._limits.cadence
        newest = state.next_release - 1
        if CHANGELOG not in self._sinks or not set(MIRRORS) & set(self._sinks):
            return None
        if self._adopts_through_us is not None:  # schemas of earlier releases may be unknown yet
            return () if state.mirrored < newest else None
        is_joining = bool(self._joining)
        if not cadence.every_us and state.mirrored == newest and not is_joining:
            return None
        return merges_due(
            stands_at=state.mirrored,
            newest=newest,
            releases=[bounds.number for bounds in releases],
            has_new_schemas=topics != state.topics,
            is_every_release_due=not cadence.every_us or state.adopts_through_us is not None,
            is_due=cadence.is_due(merged_at_us=state.mirror_merged_at_us, now_us=now_us),
            is_end=self._has_ended or cadence.is_at_end(self._through_us),
            is_joining=is_joining,
        )

    def _releases(self, stats: BatchStats) -> tuple[ReleaseBounds, ...]:
        """Return the batch's releases; the first ends where an adopted output has begun it."""
        state, limits = self._state, self._limits
        adopts_us = state.adopts_through_us
        bounds = [state.watermark_us, self._through_us]
        if adopts_us is not None and state.watermark_us < adopts_us < self._through_us:
            bounds.insert(1, adopts_us)
        releases: tuple[ReleaseBounds, ...] = ()
        for after_us, through_us in pairwise(bounds):
            releases += releases_of(
                after_us=after_us,
                through_us=through_us,
                fresh=stats.due,
                segments=state.segments,
                first_number=state.next_release + len(releases),
                rows_max=sys.maxsize if through_us == adopts_us else limits.release_rows_max,
                bytes_max=0 if through_us == adopts_us else limits.release_bytes_max,
                slice_rows=limits.slice_rows,
                small_rows_max=limits.small_release_rows_max,
                small_bytes_max=limits.small_release_bytes_max,
            )
        return releases

    def _merged(self, seen: Iterable[TopicIds]) -> tuple[TopicIds, ...]:
        merged: dict[str, TopicIds] = {
            topic_ids.topic: topic_ids for topic_ids in self._state.topics
        }
        for topic in seen:
            fixed = self._frontier.key_schema_id(topic.topic)
            if fixed is not None and set(topic.key_ids) - {fixed}:
                message = "a data topic's key schema is not the one that the epoch started with"
                hint = "Find out who writes to the topic; then reset the stream"
                fields = {"topic": topic.topic, "key_schema_ids": topic.key_ids, "fixed": fixed}
                raise ProtocolError(message, hint=hint, **fields)
            earlier = merged.get(topic.topic, TopicIds(topic.topic, (), ()))
            merged[topic.topic] = TopicIds(
                topic.topic,
                tuple(sorted({*earlier.key_ids, *topic.key_ids})),
                tuple(sorted({*earlier.value_ids, *topic.value_ids})),
            )
        return tuple(merged[topic] for topic in sorted(merged))


def _require_growth(before: EndOffsets, now: EndOffsets) -> None:
    for topic, ends in before.items():
        for topic_partition, offset in ends.items():
            if now.get(topic, {}).get(topic_partition, 0) < offset:
                raise CheckpointMismatch(
                    "a topic ends before the offset that was read of it: it was re-created",
                    hint="Start with a new output and a new checkpoint",
                    topic=topic,
                    topic_partition=topic_partition,
                    read=offset,
                )


def require_readable(rows: Iterable[ProgressRow]) -> None:
    """Raise UnreadableEnvelope if one of the progress rows opens a stream of another envelope.

    An envelope that this version does not know counts too.  The row is the first record of the
    root's slot, so nothing has been released before it is read.
    """
    for row in rows:
        body = row.record.body
        if not isinstance(body, StreamStarted):
            continue
        envelope = recorded_form(body.filters)["envelope"]
        if envelope != Envelope.TIDEGATE:
            raise UnreadableEnvelope(
                (
                    f"the stream's values have the envelope '{envelope}', and the Spark consumer "
                    "cannot read them"
                ),
                hint=(
                    'Run it on a stream with envelope = "tidegate", under another '
                    "prefix; this one is "
                    "for other programs"
                ),
                stream=body.stream,
                envelope=envelope,
            )
