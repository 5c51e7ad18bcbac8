"""A sink that takes batches as they are read, and what it must have been handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.simulation.gate_rows import DataRow
from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import Release, TableVersion

Handed = dict[int, list[DataRow]]  # what the sink was handed, by the number of the batch


class HandedModel:
    """Keeps what it is handed; a batch that is repeated must be the same."""

    name = "handed"

    def __init__(self, handed: Handed, disturbance) -> None:
        self._handed, self._disturbance = handed, disturbance

    def open(self, *, query_id: str, release_max: int) -> None:
        pass

    def take(self, batch: HandedBatch) -> None:
        rows: list[DataRow] = [row for of in batch.tables.values() for row in of]
        known = self._handed.setdefault(batch.number, rows)
        invariant(known == rows, "a repeated batch was handed over otherwise", batch=batch.number)
        if self._disturbance is not None:
            self._disturbance.point()

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        return {}


def require_handed(handed: Handed, batch: int, read: Sequence[DataRow]) -> None:
    """Raise InvariantViolation unless a batch that is done was handed over, in Kafka's order."""
    found = sorted(handed.get(batch, []), key=_topic)
    invariant(found == sorted(read, key=_topic), "a batch was not handed over", batch=batch)


def _topic(row: DataRow) -> str:
    return row.topic
