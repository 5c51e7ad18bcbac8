"""`tidegate-producer check`: whether `run` would start, without changing anything."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tidegate.producer.commands.environment import find_environment
from tidegate.producer.translation.subjects import is_registered
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.progress_codec import KEY_SCHEMAS, RECORD_SCHEMAS

if TYPE_CHECKING:
    from tidegate.producer.commands.environment import Environment
    from tidegate.producer.config import ProducerConfig

__all__ = ["check"]


def check(config: ProducerConfig) -> list[str]:
    """Return one line for each system that `run` would use; raises what `run` would raise."""
    with closing(find_environment(config)) as found:
        return _lines(config, found)


def _lines(config: ProducerConfig, found: Environment) -> list[str]:
    tables = ", ".join(table.name for table in found.description.tables)
    epoch = "no epoch yet" if found.recorded is None else f"epoch {found.recorded.epoch}"
    missing = _missing_subjects(found)
    schemas = f"would register {', '.join(missing)}" if missing else "has every schema"
    return [
        f"Spanner: {config.stream_path}, {found.description.dialect}, watches {tables}",
        f"Kafka: {config.bootstrap_servers}, progress topic {found.topics.progress}, {epoch}",
        f"registry: {config.registry_url}, {schemas}",
    ]


def _missing_subjects(found: Environment) -> list[str]:
    """Return the subjects that `run` would add a version to, the progress topic's last."""
    names, registry = found.topics, found.registry
    registrar = TableRegistrar(names, registry)
    missing = [name for table in found.description.tables for name in registrar.missing(table)]
    progress = {
        names.key_subject(names.progress): KEY_SCHEMAS,
        names.value_subject(names.progress): RECORD_SCHEMAS,
    }
    return missing + [
        subject
        for subject, versions in progress.items()
        if not all(is_registered(registry, subject, schema) for schema in versions.values())
    ]
