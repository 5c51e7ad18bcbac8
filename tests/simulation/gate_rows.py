"""The rows of one batch in memory: the port `BatchRows` over lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.disturbance import Disturbance
from tests.simulation.gate_decoding import ChangeReader
from tests.simulation.gate_sinks import Changes
from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.order_key import OrderKey, first_key_after
from tidegate.schemas.registry import SchemaRegistry
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.plan import Compaction, Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import Distribution
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.port import DecodedTable, Release

__all__ = ["DataRow", "MemoryRows", "Registry", "Segments", "count_rows", "rows_within"]


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
        self._registry = registry
        self._disturbance = disturbance

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        if self._disturbance is not None:
            self._disturbance.point()
        return self._registry.schema(schema_id)


class MemoryRows:
    """A batch's rows; segments and late rows outlive it."""

    def __init__(
        self,
        rows: Sequence[DataRow],
        progress: Sequence[ProgressRow],
        *,
        segments: Segments,
        late: dict[int, list[DataRow]],
    ) -> None:
        self._rows = rows
        self._progress = progress
        self._segments = segments
        self._late = late

    def read_progress(self, *, offsets: int) -> Sequence[ProgressRow]:
        return self._progress

    def count_changes(self, *, after_us: int, through_us: int) -> BatchStats:
        return count_rows(self._rows, after_us, through_us)

    def set_late_aside(self, plan: Plan) -> None:
        bound = first_key_after(plan.after_us)
        self._late.setdefault(plan.batch, [row for row in self._rows if row.order_key < bound])

    def store_segment(self, segment: Segment) -> None:
        inside = rows_within(self._rows, segment.min_us - 1, segment.max_us)
        self._segments.setdefault(segment.name, []).extend(sorted(inside, key=_order))

    def join_segments(self, compaction: Compaction, *, after_us: int) -> None:
        joined = [row for name in compaction.inputs for row in self._segments[name]]
        kept = [row for row in joined if row.order_key >= first_key_after(after_us)]
        output = self._segments.setdefault(compaction.output.name, [])
        output.extend(sorted(kept, key=_order))

    @contextmanager
    def release(
        self, bounds: ReleaseBounds, *, plan: Plan, topics: Mapping[str, TopicSchemas]
    ) -> Iterator[Release]:
        found = list(rows_within(self._rows, bounds.after_us, bounds.through_us))
        for name in bounds.segments:
            found += rows_within(self._segments[name], bounds.after_us, bounds.through_us)
        ordered = sorted(self.unique(found), key=_order)
        readers = {topic: ChangeReader(schemas) for topic, schemas in topics.items()}
        decoded = {topic: Changes(reader.columns) for topic, reader in readers.items()}
        for ordinal, row in enumerate(ordered):
            change = readers[row.topic].read(
                row.key, row.value, release=bounds.number, ordinal=ordinal,
                order_key=row.order_key, origin=row.origin,
            )  # fmt: skip
            decoded[row.topic].rows.append(change)
        yield Release(
            number=bounds.number,
            after_us=bounds.after_us,
            through_us=bounds.through_us,
            query_id=plan.query_id,
            batch=plan.batch,
            rows=len(ordered),
            tables={
                topic: DecodedTable(changes, len(changes.rows), topics[topic])  # type: ignore[arg-type]
                for topic, changes in decoded.items()
            },
        )

    @staticmethod
    def unique(rows: Sequence[DataRow]) -> list[DataRow]:
        """Return each change once: of copies the first by topic partition and offset."""
        unique: dict[bytes, DataRow] = {}
        for row in sorted(rows, key=lambda row: (row.topic, row.topic_partition, row.offset)):
            unique.setdefault(row.order_key, row)
        return list(unique.values())


def rows_within(rows: Sequence[DataRow], after_us: int, through_us: int) -> Iterator[DataRow]:
    low, high = first_key_after(after_us), first_key_after(through_us)
    return (row for row in rows if low <= row.order_key < high)


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
        return Distribution(0, ())
    last = len(times_us) - 1
    return Distribution(len(times_us), tuple(times_us[last * part // 4] for part in range(1, 5)))


def _order(row: DataRow) -> bytes:
    return row.order_key
