"""Reports to OpenLineage which tables a worker reads and which topics it publishes to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tidegate.producer.core.events import Event, Ticked
from tidegate.producer.core.worker import Worker
from tidegate.producer.translation.translator import TableEncoding
from tidegate.program.open_lineage import Dataset, Datasets, RunLineage

_INTERVAL_S = 1.0


class LineageNotes:
    """Called after every event of one worker; checks about once a second."""

    def __init__(
        self,
        lineage: RunLineage,
        *,
        encodings: Callable[[], Sequence[TableEncoding]],
        source_of: Callable[[str], tuple[str, str]],
        kafka: str,
    ) -> None:
        """`encodings` returns the known tables, `source_of` a table's namespace and name."""
        self._lineage = lineage
        self._encodings = encodings
        self._source_of = source_of
        self._kafka = kafka
        self._counted: dict[str, int] = {}
        self._due_at = 0.0

    def __call__(self, event: Event, worker: Worker) -> None:
        """Report what was published since the last check."""
        if not isinstance(event, Ticked) or time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _INTERVAL_S
        published = {topic: totals.mods for topic, totals in worker.counters.published.items()}
        rows = {topic: mods - self._counted.get(topic, 0) for topic, mods in published.items()}
        self._counted = published
        encodings = self._encodings()
        self._lineage.follow(
            rows=rows,
            watermark_us=worker.watermark_us,
            schemas=[(encoding.topic, encoding.value.schema_id) for encoding in encodings],
            datasets=lambda: self._datasets(encodings),
        )

    def _datasets(self, encodings: Sequence[TableEncoding]) -> Datasets:
        fields = {
            encoding.topic: tuple(
                (column.name, column.type.text) for column in encoding.table.columns
            )
            for encoding in encodings
        }
        inputs = (
            Dataset(*self._source_of(encoding.table.name), fields[encoding.topic])
            for encoding in encodings
        )
        outputs = (
            Dataset(self._kafka, encoding.topic, fields[encoding.topic], rows_of=encoding.topic)
            for encoding in encodings
        )
        return tuple(inputs), tuple(outputs)
