"""`tidegate-producer reset`: removes a stream from Kafka, so that it can begin again.

Topics that remained would show readers two epochs, which they reject.  Needs Kafka and the
registry; the fleet is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape

from tidegate.producer.cli.alone import require_no_worker
from tidegate.producer.cli.clients import kafka_options, schema_registry
from tidegate.producer.cli.report import Progress, Report, no_progress
from tidegate.producer.kafka.topics import StreamRemoval
from tidegate.program.stream_start import require_topic_names
from tidegate.schemas.errors import SchemaError

if TYPE_CHECKING:
    from tidegate.producer.config import ProducerConfig
    from tidegate.program.registry_http import HttpSchemaRegistry


@dataclass(frozen=True, slots=True)
class ResetReport(Report):
    """What was removed, or would be."""

    prefix: str
    topics: list[str]
    groups: list[str]
    subjects: list[str]
    removed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.topics or self.groups or self.subjects)

    def shown(self) -> RenderableType:
        """Return a line for each topic, group and subject."""
        kinds = {"topic": self.topics, "group": self.groups, "subject": self.subjects}
        verb = "deleted" if self.removed else "would be deleted"
        lines = [f"{kind} {escape(name)} {verb}" for kind, names in kinds.items() for name in names]
        return Group("\n".join(lines) or "There is nothing to delete.")


def reset(
    config: ProducerConfig,
    *,
    with_subjects: bool = False,
    dry_run: bool = False,
    confirm: Callable[[ResetReport], bool] = lambda _report: True,
    progress: Progress = no_progress,
) -> ResetReport:
    """Remove topics, groups and, if requested, the registry's subjects of a stream.

    `confirm` is shown what would be removed; nothing is changed if it returns false.  It is called
    again if that has changed when all workers have left: a worker may still have made a topic.
    Raises ConfigError for a stream with another `topic_template`, whose data topics would remain,
    while workers are in the group, if the prefix of another stream continues this one, or for a
    missing right, and UnreachableError.
    """
    removal = StreamRemoval(config.topic_names, config.bootstrap_servers, kafka_options(config))
    registry = schema_registry(config)
    report = _found(config, removal, registry, with_subjects=with_subjects)
    while True:
        if dry_run or report.is_empty or not confirm(report):
            return report
        require_no_worker(config, progress, former_run=None)
        seen, report = report, _found(config, removal, registry, with_subjects=with_subjects)
        if report == seen:
            break
    progress("deleting topics and groups", 0)
    removal.remove(report.topics, report.groups)
    for number, subject in enumerate(report.subjects):
        progress("deleting subjects", number)
        registry.delete(subject)
    return replace(report, removed=True)


def _found(
    config: ProducerConfig,
    removal: StreamRemoval,
    registry: HttpSchemaRegistry,
    *,
    with_subjects: bool,
) -> ResetReport:
    names = config.topic_names
    topics = removal.topics()
    if names.progress in topics:
        # A stream whose records cannot be decoded, because the registry has lost their schema, can
        # only be removed: what would be removed is shown.
        with suppress(SchemaError):
            require_topic_names(config, registry.schema)
    subjects = []
    if with_subjects:
        registry.require_reachable()
        subjects = [name for name in registry.subject_names() if names.is_subject(name)]
    return ResetReport(config.prefix, topics, removal.groups(), subjects)
