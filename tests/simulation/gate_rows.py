"""The rows of one batch in memory: the port `BatchRows` over lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.simulation.disturbance import Disturbance
from tests.simulation.gate_decoding import ChangeReader
from tests.simulation.gate_sinks import Changes
from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.checksums import CHECKSUM_MODULUS, xxhash_64
from tidegate.schemas.errors import InvariantViolation, UnreachableError, invariant
from tidegate.schemas.order_key import OrderKey, first_key_after
from tidegate.schemas.progress import PartitionGap
from tidegate.schemas.registry import SchemaRegistry
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.conservation import require_whole
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import BatchStats, Distribution, first_ordinals
from tidegate.spark_consumer.core.sums import (
    NO_ROWS,
    Conflict,
    ReleaseCount,
    RowSum,
    SegmentRead,
    sum_by_origin,
)
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.core.transactions import count_transactions
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import DecodedTable, Release


@dataclass(frozen=True, slots=True)
class DataRow:
    """A data record as the gate's batch holds it; key and value are framed."""

    order_key: bytes
    topic: str
    topic_partition: int
    offset: int
    key: bytes
    value: bytes
    origin: int | None
    """As the column of Spark's rows: signed, null where no header names a stream partition."""

    @property
    def commit_timestamp_us(self) -> int:
        return OrderKey.decode(self.order_key).commit_timestamp_us

    @property
    def key_id(self) -> int:
        return unframe(self.key)[0]

    @property
    def value_id(self) -> int:
        return unframe(self.value)[0]


Segments = dict[str, list[DataRow]]


class Registry:
    """The fleet's registry, as the gate reaches it: a request may fail."""

    def __init__(self, registry: SchemaRegistry, disturbance: Disturbance | None) -> None:
        self._registry, self._disturbance = registry, disturbance

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        if self._disturbance is not None:
            self._disturbance.point()
        return self._registry.schema(schema_id)


class MemoryRows:
    def __init__(
        self,
        rows: Sequence[DataRow],
        progress: Sequence[Sequence[ProgressRow]],
        *,
        segments: Segments,
        late: dict[int, list[DataRow]],
        disturbance: Disturbance | None = None,
        collects: bool = False,
    ) -> None:
        self._rows, self._progress, self._segments = rows, progress, segments
        self._late, self._disturbance, self._collects = late, disturbance, collects

    def read_progress(self, *, offsets: int, data_offsets: int) -> Sequence[Sequence[ProgressRow]]:
        return self._progress

    def count_changes(self, *, after_us: int, through_us: int, offsets: int) -> BatchStats:
        return count_rows(self._rows, after_us, through_us)

    def set_late_aside(self, plan: Plan) -> int:
        bound = first_key_after(plan.after_us)
        late = [row for row in self._rows if row.order_key < bound]
        return len(self._late.setdefault(plan.batch, late))

    @contextmanager
    def handed_over(
        self, *, plan: Plan, topics: Mapping[str, TopicSchemas]
    ) -> Iterator[HandedBatch]:
        """The rows stand in place of the tables' frames, by topic."""
        tables: Any = {topic: [row for row in self._rows if row.topic == topic] for topic in topics}
        yield HandedBatch(
            number=plan.batch,
            query_id=plan.query_id,
            watermark_us=plan.through_us,
            rows=sum(map(len, tables.values())),
            tables=tables,
        )

    def store_dead_letters(self, plan: Plan, release: int | None) -> int:
        raise InvariantViolation(
            "workers write nothing that would be a dead letter", batch=plan.batch, release=release
        )

    def store_segment(self, segment: Segment) -> tuple[RowSum, ...]:
        inside = rows_within(self._rows, segment.min_us - 1, segment.max_us)
        return self._write(list(inside), segment)

    def join_segments(
        self, output: Segment, *, reads: Sequence[SegmentRead], after_us: int
    ) -> tuple[tuple[RowSum, ...], RowSum]:
        joined, waiting = self._read(reads)
        kept = [row for row in joined if row.order_key >= first_key_after(after_us)]
        return self._write(kept, output), waiting

    def inspect_segments(self, reads: Sequence[SegmentRead]) -> tuple[RowSum | None, ...]:
        return tuple(
            sum_of(rows_within(self._segments[read.name], read.after_us, read.through_us))
            if read.name in self._segments
            else None
            for read in reads
        )

    @contextmanager
    def release(
        self,
        bounds: ReleaseBounds,
        *,
        reads: Sequence[SegmentRead],
        plan: Plan,
        topics: Mapping[str, TopicSchemas],
        complete_from_us: int,
        gaps: Sequence[PartitionGap] = (),
    ) -> Iterator[tuple[Release, ReleaseCount]]:
        for named in plan.topics:
            # Also where the registry and the source have newer schemas by the time of a replay.
            found_ids = (
                topics[named.topic].writer_schemas.keys() if named.topic in topics else set()
            )
            wanted = {*named.key_ids, *named.value_ids} if named.value_ids else set()
            invariant(
                found_ids == wanted,
                "a release is read with schemas that are not those of its plan",
                topic=named.topic,
                schemas=sorted(found_ids),
                plan=named,
            )
        pending, waiting = self._read(reads)
        due = list(rows_within(pending, bounds.after_us, bounds.through_us))
        found = [*rows_within(self._rows, bounds.after_us, bounds.through_us), *due]
        slices = [
            sorted(self.unique(list(rows_within(found, low, high))), key=_order)
            for low, high in bounds.slices
        ]
        ordinals = [
            first + place
            for first, rows in zip(first_ordinals(map(len, slices)), slices, strict=True)
            for place in range(len(rows))
        ]
        ordered = [row for rows in slices for row in rows]
        readers = {topic: ChangeReader(schemas) for topic, schemas in topics.items()}
        decoded = {
            topic: Changes(reader.columns, is_small=bounds.is_small and self._collects)
            for topic, reader in readers.items()
        }
        conflict = conflict_in(found)
        # What somebody else's record holds may not be decodable.
        numbered = () if conflict else zip(ordinals, ordered, strict=True)
        for ordinal, row in numbered:
            change = readers[row.topic].read(
                row.key, row.value, release=bounds.number, ordinal=ordinal,
                order_key=row.order_key, origin=row.origin,
            )  # fmt: skip
            decoded[row.topic].rows.append(change)
        tables = {topic: _table(changes, topics[topic]) for topic, changes in decoded.items()}
        release = Release.of(bounds, tables, plan=plan, rows=len(ordered), records=len(found))
        records = [
            (*row.record, topic) for topic, changes in decoded.items() for row in changes.rows
        ]
        faults = count_transactions(records, after_us=complete_from_us, gaps=gaps)
        origins = sum_by_origin(
            (row.origin, row.topic, row.order_key, len(row.value)) for row in ordered
        )
        yield (
            release,
            ReleaseCount(len(ordered), len(found), waiting, len(due), conflict, faults, origins),
        )

    def _write(self, rows: Sequence[DataRow], segment: Segment) -> tuple[RowSum, ...]:
        """Overwrite what has this name; the process may be replaced before, and die in between."""
        ordered = sorted(rows, key=_order)
        half = len(ordered) // 2
        disturbance = self._disturbance
        if disturbance is not None:
            disturbance.point(is_in_commit=True)
        self._segments[segment.name] = ordered[:half]
        if disturbance is not None and disturbance.chance(disturbance.profile.replaced_in_commit):
            message = "killed in the middle of a segment"
            disturbance.tell(message)
            raise UnreachableError(message)
        self._segments[segment.name] = ordered
        edges = (segment.min_us - 1, *segment.cuts_us)
        return tuple(sum_of(rows_within(ordered, low, high)) for low, high in pairwise(edges))

    def _read(self, reads: Sequence[SegmentRead]) -> tuple[list[DataRow], RowSum]:
        if any(read.name not in self._segments for read in reads):
            require_whole(reads, self.inspect_segments(reads))
        rows: list[DataRow] = []
        waiting = NO_ROWS
        for read in reads:
            found = list(rows_within(self._segments[read.name], read.after_us, read.through_us))
            rows += found
            waiting += sum_of(found) if read.expected is not None else NO_ROWS
        return rows, waiting

    @staticmethod
    def unique(rows: Sequence[DataRow]) -> list[DataRow]:
        """Return each change once: of copies the first by topic partition and offset."""
        unique: dict[bytes, DataRow] = {}
        for row in sorted(rows, key=lambda row: (row.topic, row.topic_partition, row.offset)):
            unique.setdefault(row.order_key, row)
        return list(unique.values())


def _table(changes: Changes, schemas: TopicSchemas) -> DecodedTable:
    frame: Any = changes
    no_session: Any = None
    return DecodedTable(no_session, lambda: frame, len(changes.rows), schemas)


def conflict_in(rows: Iterable[DataRow]) -> Conflict | None:
    by_key: dict[bytes, list[DataRow]] = {}
    for row in rows:
        by_key.setdefault(row.order_key, []).append(row)
    conflicts = [
        of_key
        for _, of_key in sorted(by_key.items())
        if len({(row.topic, row.key, row.value) for row in of_key}) > 1
    ]
    if not conflicts:
        return None
    places = sorted((row.topic, row.topic_partition, row.offset) for row in conflicts[0])
    first, last = ("/".join(map(str, place)) for place in (places[0], places[-1]))
    return Conflict(len(conflicts), conflicts[0][0].commit_timestamp_us, first, last)


def rows_within(rows: Sequence[DataRow], after_us: int, through_us: int) -> Iterator[DataRow]:
    low, high = first_key_after(after_us), first_key_after(through_us)
    return (row for row in rows if low <= row.order_key < high)


def sum_of(rows: Iterable[DataRow]) -> RowSum:
    hashes = [xxhash_64(b"".join((row.order_key, row.key, row.value))) for row in rows]
    return RowSum(len(hashes), sum(hashes) % CHECKSUM_MODULUS)


def count_rows(rows: Sequence[DataRow], after_us: int, through_us: int) -> BatchStats:
    late_bound = first_key_after(after_us)
    times = [row.commit_timestamp_us for row in rows]
    due = sorted(us for us in times if after_us < us <= through_us)
    early = sorted(us for us in times if us > max(after_us, through_us))
    key_ids: dict[str, set[int]] = {}
    value_ids: dict[str, set[int]] = {}
    for row in rows:
        key_ids.setdefault(row.topic, set()).add(row.key_id)
        value_ids.setdefault(row.topic, set()).add(row.value_id)
    return BatchStats(
        late_rows=sum(row.order_key < late_bound for row in rows),
        due=_distribution(due),
        early=_distribution(early),
        early_checksum=sum_of(
            row for row in rows if row.commit_timestamp_us > max(after_us, through_us)
        ).checksum,
        early_min_us=early[0] if early else None,
        early_max_us=early[-1] if early else None,
        topics=tuple(
            TopicIds(topic, tuple(sorted(key_ids[topic])), tuple(sorted(value_ids[topic])))
            for topic in sorted(value_ids)
        ),
    )


def _distribution(times_us: list[int]) -> Distribution:
    """Four quantiles, so that a cut lies elsewhere than exact counting would put it."""
    if not times_us:
        return Distribution(0, (), 0)
    last = len(times_us) - 1
    quantiles_us = tuple(times_us[last * part // 4] for part in range(1, 5))
    return Distribution(len(times_us), quantiles_us, len(times_us))


def _order(row: DataRow) -> bytes:
    return row.order_key
