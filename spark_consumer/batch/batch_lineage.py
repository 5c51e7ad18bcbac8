"""Reports to OpenLineage what batches have read and written, by topic and table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.program.open_lineage import Dataset, Datasets, RunLineage, kafka_namespace, place_of
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, row_fields
from tidegate.spark_consumer.sinks.manifest import Manifest, read_manifest

_TOPIC_SINK = "topic"
_NAMED = ("iceberg_changelog", "iceberg_mirror")
"""Sinks whose tables have a place of several parts, or a name in a catalog."""


class BatchLineage:
    """Called after each batch; the datasets are those of its newest release."""

    def __init__(self, lineage: RunLineage, parts: Parts, *, output: str, brokers: str) -> None:
        """Take the output's address, and Kafka's."""
        self._lineage = lineage
        self._parts = parts
        self._output = output
        self._kafka = kafka_namespace(brokers)

    def __call__(self, loop: EffectLoop) -> None:
        """Add a batch's reads and writes; sends an event if one is due."""
        releases = loop.plan.releases
        if not releases:
            return
        topics = self._parts.schemas.topics(loop.plan.topics, self._parts.subscription)
        watermark_us = loop.state.watermark_us
        self._lineage.follow(
            rows=loop.table_rows,
            watermark_us=watermark_us if watermark_us > BEFORE_EVERYTHING_US else None,
            schemas=loop.plan.topics,
            datasets=lambda: self._datasets(releases[-1].number, topics),
        )

    def _datasets(self, release: int, topics: Mapping[str, TopicSchemas]) -> Datasets:
        inputs = tuple(
            Dataset(self._kafka, topic, _fields(schemas)) for topic, schemas in topics.items()
        )
        manifest = read_manifest(self._parts.output, release)
        return inputs, () if manifest is None else tuple(self._outputs(manifest, topics))

    def _outputs(self, manifest: Manifest, topics: Mapping[str, TopicSchemas]) -> Iterator[Dataset]:
        fields = {schemas.table: _fields(schemas) for schemas in topics.values()}
        namespace, root = place_of(self._output)
        for table, sinks in sorted(manifest.tables.items()):
            for sink, version in sorted(sinks.items()):
                if sink == _TOPIC_SINK:
                    place = self._kafka, version.path
                elif sink in _NAMED:
                    place = namespace, f"{root}/{version.path}"
                else:  # files of a release are below the table's folder
                    folder = "/".join(version.path.split("/")[:2])
                    place = namespace, f"{root}/{folder}"
                yield Dataset(*place, fields.get(table, ()), rows_of=table)


def _fields(schemas: TopicSchemas) -> tuple[tuple[str, str], ...]:
    return tuple(
        (field["name"], _type(field["type"])) for field in row_fields(schemas.reader_schema)
    )


def _type(avro: Any) -> str:
    """Return an Avro type in a word or two: that of a value that is there."""
    match avro:
        case list():
            return _type(next(branch for branch in avro if branch != "null"))
        case {"type": "array", "items": items}:
            return f"array<{_type(items)}>"
        case {"logicalType": logical}:
            return str(logical)
        case {"name": name}:
            return str(name)
        case {"type": kind}:
            return _type(kind)
        case _:
            return str(avro)
