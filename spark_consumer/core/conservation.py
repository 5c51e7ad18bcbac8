"""Conservation: no change is lost between Kafka, the segments and the sinks.

    read + waiting before = dead letters + late + copies + released + waiting after

Every segment is counted when it is written, in parts: rows and a checksum up to some commit
timestamps.  A step that needs a range of it reads whole parts, and both are compared before
anything is written to a sink.  All figures come with jobs that run anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.spark_consumer.core.batch_state import Segment, State
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.sums import (
    NO_ROWS,
    Conflict,
    ReleaseCount,
    RowSum,
    SegmentRead,
)
from tidegate.spark_consumer.errors import ChangesNotConserved, ConflictingCopies, SegmentDamaged

_DAMAGE_HINT = (
    "Something has changed the folder gate/segments of the checkpoint: restore it, or start with "
    "a new checkpoint and a new output while Kafka still holds the changes"
)
_CONFLICT_HINT = (
    "Only Tidegate's workers may write to data topics: compare the two records, and find the "
    "program that wrote the other one"
)
_LATE_HINT = "No release of the batch was written. Report it as a bug, with the table's history"
_DEAD_LETTERS_HINT = "Nothing is lost: a restart repeats the batch. If it comes again, report it"
_BUG_HINT = "Nothing of this release was written; a restart repeats the batch. Report it as a bug"


def reads_of(
    segments: Iterable[Segment], *, after_us: int, through_us: int
) -> tuple[SegmentRead, ...]:
    """Return what must be read of segments for the changes within the bounds: whole parts."""
    return tuple(
        _read_of(segment, after_us=after_us, through_us=through_us) for segment in segments
    )


def _read_of(segment: Segment, *, after_us: int, through_us: int) -> SegmentRead:
    low_us, high_us = segment.min_us - 1, segment.max_us
    if not segment.parts:
        return SegmentRead(segment.name, max(low_us, after_us), min(high_us, through_us), None)
    expected = NO_ROWS
    begin_us, first_us = low_us, None
    for part in segment.parts:
        if part.through_us > after_us and begin_us < through_us:
            first_us = begin_us if first_us is None else first_us
            high_us = part.through_us
            expected += RowSum(part.rows, part.checksum)
        begin_us = part.through_us
    if first_us is None:
        return SegmentRead(segment.name, high_us, high_us, NO_ROWS)
    return SegmentRead(segment.name, first_us, high_us, expected)


def require_whole(reads: Sequence[SegmentRead], sums_read: Sequence[RowSum | None]) -> None:
    """Raise SegmentDamaged for the first segment that is not as it was written.

    `sums_read` has an entry for each read, None where the segment cannot be read.
    """
    for read, sums in zip(reads, sums_read, strict=True):
        if sums is None:
            raise SegmentDamaged(
                "a pending segment cannot be read", hint=_DAMAGE_HINT, segment=read.name
            )
        if read.expected is None or sums == read.expected:
            continue
        raise SegmentDamaged(
            "a pending segment does not hold the changes that were written to it",
            hint=_DAMAGE_HINT,
            segment=read.name,
            after_us=read.after_us,
            through_us=read.through_us,
            rows=sums.rows,
            rows_written=read.expected.rows,
            checksum=sums.checksum,
            checksum_written=read.expected.checksum,
        )


def is_whole(reads: Iterable[SegmentRead], total: RowSum) -> bool:
    """Whether the counted segments together hold what was written to them."""
    counted = [read.expected for read in reads if read.expected is not None]
    return total == sum(counted, NO_ROWS)


class Balance:
    """The account of one batch; each method raises ChangesNotConserved if figures do not agree."""

    def __init__(self, state: State, plan: Plan) -> None:
        """Start with the changes that wait before the batch."""
        self._state = state
        self._plan = plan
        self._due_rows = 0
        self._waiting_due = 0
        self._stored = NO_ROWS
        self._counted = 0
        self.copies = 0
        """Records of its releases that repeat a change."""

    def add_release(self, count: ReleaseCount) -> None:
        """Take the next release's figures, before it is written.

        Raises ConflictingCopies too: it is unknown which of the records is the change.
        """
        _require_equal_copies(count.conflict)
        self._counted += 1
        self.copies += count.copies - count.rows
        self._due_rows += count.copies + count.dead_letters - count.waiting_due
        self._waiting_due += count.waiting_due
        fresh = self._plan.fresh
        is_last = self._counted == len(self._plan.releases)
        if fresh is not None and is_last and self._due_rows != fresh.due_rows:
            raise ChangesNotConserved(
                "a batch's releases do not hold the changes that were read for them",
                hint=_BUG_HINT,
                batch=self._plan.batch,
                read=fresh.due_rows,
                released=self._due_rows,
            )
        waiting_rows = self._state.waiting_rows
        if waiting_rows is not None and self._waiting_due > waiting_rows:
            self._fail_waiting(waiting_rows - self._waiting_due, 0, waiting_rows)

    def add_late(self, rows: int) -> None:
        """Take the number of the batch's changes in the table of late changes."""
        if rows != self._plan.late_rows:
            raise ChangesNotConserved(
                "the table of late changes does not hold those that were read",
                hint=_LATE_HINT,
                batch=self._plan.batch,
                read=self._plan.late_rows,
                stored=rows,
            )

    def add_dead_letters(self, expected: int, stored: int) -> None:
        """Take the number of the batch's, or a release's, records in the table of dead letters."""
        if stored != expected:
            raise ChangesNotConserved(
                "the table of dead letters does not hold the records that were set aside",
                hint=_DEAD_LETTERS_HINT,
                batch=self._plan.batch,
                read=expected,
                stored=stored,
            )

    def add_segment(self, segment: Segment) -> None:
        """Take the sums of a segment that was written from the batch's own changes."""
        self._stored = sum((RowSum(p.rows, p.checksum) for p in segment.parts), self._stored)

    def close(self, segments: Iterable[Segment]) -> int | None:
        """Return how many changes wait after the batch, in these segments.

        None while a segment that an older program wrote, uncounted, makes that unknown.
        """
        fresh = self._plan.fresh
        if fresh is not None and self._stored != fresh.early:
            raise ChangesNotConserved(
                "a batch's segments do not hold the changes that were read for them",
                hint=_BUG_HINT,
                batch=self._plan.batch,
                read=fresh.early.rows,
                stored=self._stored.rows,
                checksum=fresh.early.checksum,
                checksum_stored=self._stored.checksum,
            )
        kept = tuple(segments)
        if any(not segment.parts for segment in kept):
            return None
        least, most = _waiting_in(kept, self._plan.through_us)
        before = self._state.waiting_rows
        if before is None:
            return least if least == most else None
        waiting = before - self._waiting_due + self._stored.rows
        if not least <= waiting <= most:
            self._fail_waiting(waiting, least, most)
        return waiting

    def _fail_waiting(self, waiting: int, least: int, most: int) -> None:
        raise ChangesNotConserved(
            "the segments do not hold the changes that wait",
            hint=_BUG_HINT,
            batch=self._plan.batch,
            waiting=waiting,
            least=least,
            most=most,
        )


def _require_equal_copies(conflict: Conflict | None) -> None:
    if conflict is None:
        return
    raise ConflictingCopies(
        "two records have the same order key and are not the same change",
        hint=_CONFLICT_HINT,
        first=conflict.first,
        last=conflict.last,
        commit_timestamp_us=conflict.commit_timestamp_us,
        changes=conflict.changes,
    )


def _waiting_in(segments: Iterable[Segment], watermark_us: int) -> tuple[int, int]:
    """Return between how many and how many rows of counted segments lie above the watermark."""
    least = most = 0
    for segment in segments:
        begin_us = segment.min_us - 1
        for part in segment.parts:
            least += part.rows if begin_us >= watermark_us else 0
            most += part.rows if part.through_us > watermark_us else 0
            begin_us = part.through_us
    return least, most
