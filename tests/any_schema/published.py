"""A world's changes as the real translator writes them, under schemas of a registry in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.any_schema.changes import Committed, World
from tidegate.producer.messages import ChangeMessage
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, reader_schema

_NAMES = TopicNames("p")
_STREAM = "everything"


@dataclass(frozen=True)
class Published:
    """A change as committed and as published."""

    committed: Committed
    message: ChangeMessage

    def row(self, ordinal: int) -> tuple[Any, ...]:
        """Return a row of a release, as the gate hands it to the decoder."""
        one = self.message
        origin = int.from_bytes(one.origin, "big", signed=True)
        return (
            one.topic, 0, ordinal, bytearray(one.key), bytearray(one.value),
            bytearray(one.order_key), one.mod.decode(), origin, ordinal,
        )  # fmt: skip


@dataclass(frozen=True)
class PublishedStage:
    """The changes of a stage, in commit order, and the schemas of each topic at its end."""

    changes: list[Published]
    schemas: dict[str, TopicSchemas]


class _Catalogue:
    """The columns of each table as they are now."""

    def __init__(self) -> None:
        self.tables: dict[str, TableSchema] = {}

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        return self.tables.get(name)


def publish(world: World, registry: InMemorySchemaRegistry | None = None) -> list[PublishedStage]:
    """Translate all of a world, as one worker that meets new columns while it runs."""
    registry = InMemorySchemaRegistry() if registry is None else registry
    form = TimestampForm.STRING if world.has_text_times else TimestampForm.MICROS
    registrar, catalogue = TableRegistrar(_NAMES, registry, form), _Catalogue()
    encodings = {
        name: registrar.register(table.schema()) for name, table in world.stages[0].tables.items()
    }
    translator = TableRefresher(
        Translator(encodings, change_stream=_STREAM), catalogue, registrar, topics=None
    )
    found = []
    for stage in world.stages:
        catalogue.tables = {name: table.schema() for name, table in stage.tables.items()}
        messages = [
            message
            for record in stage.records
            for message in translator.translate(record, token="T").messages
        ]
        changes = [Published(*pair) for pair in zip(stage.committed, messages, strict=True)]
        schemas = {_NAMES.data(name): _schemas(registry, name) for name in stage.tables}
        found.append(PublishedStage(changes, schemas))
    return found


def _schemas(registry: InMemorySchemaRegistry, table: str) -> TopicSchemas:
    topic = _NAMES.data(table)
    keys = registry.versions(_NAMES.key_subject(topic))
    values = registry.versions(_NAMES.value_subject(topic))
    return TopicSchemas(
        table,
        keys[-1].schema,
        reader_schema([value.schema for value in values]),
        {key.schema_id: key.schema for key in (*keys, *values)},
    )
