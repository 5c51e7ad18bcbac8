"""`tidegate-producer dead-letters`: the dead-letter topic by reason and by table or file.

Reads the topic, to which workers may continue to write; needs neither Spanner nor the registry, and
changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.producer.cli.alone import LEAVING_S
from tidegate.producer.cli.clients import kafka_options
from tidegate.producer.cli.report import Progress, no_progress
from tidegate.producer.datastream.errors import DatastreamError
from tidegate.producer.errors import StreamNotStarted
from tidegate.producer.kafka.dead_letters import KafkaDeadLetters
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.producer.translation.dead_letter_groups import DeadLetterGroup, grouped
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339

if TYPE_CHECKING:
    from tidegate.producer.config import ProducerConfig


_REMEDIES = {
    "MessageTooLarge": "Raise the topic's max.message.bytes, and redrive",
    "IncompatibleChange": "Undo the change of the table and redrive, or reset the stream",
    "KeyParked": "Remove the cause of the key's first parked change; redrive puts back all of them",
    "SchemaError": "Report it with the record: its value does not fit its column's type",
    "TopicRefused": "Let Kafka create the table's topic, as the error says, and redrive",
}
_REMEDIES_OF_FILES = {kind.__name__: kind.fix for kind in DatastreamError.__subclasses__()}
_FILE_REMEDY = "Remove the cause and backfill the object in Datastream: redrive puts back no event"
_UNKNOWN = "Look the error up in docs/reference/errors.md"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """The records of one reason and one table or file."""

    reason: str
    """The class of the error."""
    table: str | None
    """None for an event of a file."""
    file: str | None
    """None for a change of a table."""
    count: int
    first: str | None
    """When the first of them was written; None if the records do not have the time."""
    last: str | None
    error: str
    """The newest error text."""
    token: str
    """The stream partition of the newest record; the next fields are of the same record."""
    place: str
    topic_partition: int
    offset: int
    remedy: str
    """What the operator should do."""


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    """The records of the dead-letter topic that were not put back."""

    dead_letter: str
    records: int
    groups: tuple[ListedGroup, ...]
    """The groups, the one with the newest record first."""
    dropped: int
    """Number of groups that were dropped because there were too many; `records` counts theirs."""

    def as_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def dead_letters(config: ProducerConfig, *, progress: Progress = no_progress) -> DeadLetterReport:
    """Return the dead letters; the topic is read twice, up to its end at that moment.

    Raises StreamNotStarted for a stream that has not begun, and as `KafkaDeadLetters.read` does.
    """
    names = config.topic_names
    options = kafka_options(config)
    topics = KafkaTopics(config.bootstrap_servers, options=options)
    described = topics.describe((names.progress, names.dead_letter))
    if names.progress not in described:
        raise StreamNotStarted(names.progress)
    topic = described.get(names.dead_letter)
    if topic is None:
        return DeadLetterReport(names.dead_letter, 0, (), 0)
    letters = KafkaDeadLetters(
        bootstrap_servers=config.bootstrap_servers,
        group=names.group,
        topic=names.dead_letter,
        topic_partitions=topic.topic_partitions,
        # Longer than a transaction that a worker left open can last.
        patience_s=config.transaction_timeout_ms / 1_000 + LEAVING_S,
        options=options,
    )
    groups = grouped(letters.read, progress=progress)
    listed = tuple(
        _listed(group, table=names.table(group.subject) or group.subject)
        for group in groups.listed()
    )
    return DeadLetterReport(names.dead_letter, groups.records, listed, groups.dropped)


def dead_letters_table(report: DeadLetterReport, *, rows_max: int) -> RenderableType:
    """Return the output of `dead-letters` for a terminal of 100 columns."""
    if not report.records:
        return "Nothing is set aside."
    table = Table("count", "first and last", "reason", "table or file", "last, and what to do")
    for group in report.groups[:rows_max]:
        instants = sorted({group.first or "unknown", group.last or "unknown"})
        subject = group.file if group.table is None else group.table
        last = f"{group.place}. {group.error}" if group.error else group.place
        text = last if group.remedy in last else f"{last}. {group.remedy}"
        table.add_row(
            f"{group.count:,}", "\n".join(instants), escape(group.reason), escape(subject or ""),
            escape(text),
        )  # fmt: skip
    left = len(report.groups) - rows_max
    captions = [f"{left} more: --limit, or --json"] if left > 0 else []
    captions += [f"{report.dropped} older ones were dropped"] if report.dropped else []
    table.caption = "; ".join(captions) or None
    return Group(f"{report.records:,} records of {escape(report.dead_letter)}", table)


def _listed(group: DeadLetterGroup, *, table: str) -> ListedGroup:
    return ListedGroup(
        reason=group.reason,
        table=None if group.is_file else table,
        file=group.subject if group.is_file else None,
        count=group.count,
        first=_second(group.first_us),
        last=_second(group.last_us),
        error=group.error,
        token=group.token,
        place=group.place,
        topic_partition=group.topic_partition,
        offset=group.offset,
        # Redrive does not put an event of a file back, whatever the reason.
        remedy=_REMEDIES_OF_FILES.get(group.reason, _FILE_REMEDY)
        if group.is_file
        else _REMEDIES.get(group.reason, _UNKNOWN),
    )


def _second(us: int | None) -> str | None:
    if us is None:
        return None
    return format_rfc3339(us // US_PER_SECOND * US_PER_SECOND * NS_PER_US)
