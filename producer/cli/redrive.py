"""`tidegate-producer redrive`: puts parked changes back after their cause was removed.

Offline: the fleet is stopped.  It joins the group as its only member, reads the dead-letter topic
and publishes the changes that can now be published, in one transaction.  If it ends before the
commit, nothing has changed.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import fastavro
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.producer.cli.alone import LEAVING_S, join, require_no_worker
from tidegate.producer.cli.environment import Environment, find_environment
from tidegate.producer.cli.fleet_reader import FleetReader
from tidegate.producer.cli.report import Progress, Report, no_progress
from tidegate.producer.cli.sole_runs import Redriver, put_back_parked
from tidegate.producer.cli.stream_states import Command, require_command
from tidegate.producer.cli.worker_parts import Parts, prepare
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.sole_workers import RedrivingWorker
from tidegate.producer.errors import StreamNotStarted
from tidegate.producer.kafka.dead_letters import KafkaDeadLetters
from tidegate.producer.spanner.decoding.fields import values_of_text
from tidegate.producer.translation.parked_changes import ParkedKey, ParkedTranslator, Selection
from tidegate.schemas.errors import ConfigError, TidegateError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.wire_format import unframe

NAME = "redrive"
"""Its worker name: a second redrive fences the first one, and aborts its open transaction."""

_TRANSACTION_TIMEOUT_MS = 900_000
_KEY_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class LeftKey:
    """A key whose changes stay parked."""

    topic: str
    key: str
    changes: int
    first_commit_timestamp: str
    reason: str
    error: str


@dataclass(frozen=True, slots=True)
class RedriveReport(Report):
    """The changes that were put back, or would be."""

    dead_letter: str
    dry_run: bool
    changes: dict[str, int] = field(default_factory=dict)
    """Number of changes put back, by data topic."""
    keys: dict[str, int] = field(default_factory=dict)
    left: list[LeftKey] = field(default_factory=list)

    def shown(self) -> RenderableType:
        """Return a line for each topic, and a table of the keys that stay parked."""
        verb = "would be put back" if self.dry_run else "put back"
        parts: list[RenderableType] = [
            f"{topic}: {changes} changes of {self.keys[topic]} keys {verb}"
            for topic, changes in self.changes.items()
        ]
        if not self.changes:
            parts.append("No change can be put back." if self.left else "No change is parked.")
        if self.left:
            table = Table(
                "topic", "key", "changes", "since", "reason", title="These keys stay parked"
            )
            for key in self.left:
                table.add_row(
                    key.topic,
                    escape(key.key),
                    str(key.changes),
                    key.first_commit_timestamp,
                    escape(f"{key.reason}: {key.error}"),
                )
            parts.append(table)
        return Group(*parts)


def redrive(
    config: ProducerConfig,
    *,
    table: str = "",
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> RedriveReport:
    """Put back parked changes, of one table or of all; with `dry_run` only report what would be.

    A dry run creates no topic and registers no schema, so it does not show whether the registry
    accepts a new schema.  `progress` is called with the present step and the number of completed
    records.  Raises ConfigError while workers are in the group, for a stream that has not begun or
    a table without a topic, CommandRefused for a stream whose state does not permit it, and
    RedriveFailed if changes were to be put back and none was.
    """
    config = config.model_copy(
        update={
            "worker": NAME,
            "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS,
            "poison": "stop",
        }
    )
    with ExitStack() as exits:
        environment = exits.enter_context(closing(find_environment(config)))
        if environment.recorded is None:
            raise StreamNotStarted(environment.topics.progress)
        with closing(FleetReader(config)) as reader:
            require_command(Command.REDRIVE, reader.read(), reader.members())
        dead_letter = environment.topics.dead_letter
        if not environment.has_dead_letter:
            return RedriveReport(dead_letter, dry_run)
        if not dry_run:
            require_no_worker(config, progress, former_run=NAME)
        parts = prepare(environment.planned() if dry_run else environment)
        if dry_run:
            parts.topics.on_found = lambda _topic: None
        topic = environment.topics.data(table) if table else None
        if topic is not None and topic not in parts.counts:
            raise ConfigError(
                f"table {table!r} has no topic of this stream",
                hint="Use the name that Spanner reports, with its schema",
            )
        translator = ParkedTranslator(
            parts.translator, parts.limits, values_of_text, parts.plain.todays_key
        )
        letters = _letters(parts)
        redriver = None
        if not dry_run:
            core = parts.worker(RedrivingWorker)
            redriver = join(parts, exits, core, Redriver, progress=progress, redrives=True)
        selection = put_back_parked(
            letters.read,
            translator.message,
            redriver,
            todays_key=parts.plain.todays_key,
            topic=topic,
            progress=progress,
        )
        return _report(selection, parts.environment, dead_letter, dry_run=dry_run)


def _letters(parts: Parts) -> KafkaDeadLetters:
    environment = parts.environment
    return KafkaDeadLetters(
        bootstrap_servers=parts.config.bootstrap_servers,
        group=environment.topics.group,
        topic=parts.dead_letter,
        topic_partitions=parts.counts[parts.dead_letter],
        # Longer than a transaction that a worker left open can last.
        patience_s=_TRANSACTION_TIMEOUT_MS / 1_000 + LEAVING_S,
        options=environment.kafka_options,
    )


def _report(
    selection: Selection, environment: Environment, dead_letter: str, *, dry_run: bool
) -> RedriveReport:
    changes: Counter[str] = Counter()
    for name, key in selection.chosen.items():
        changes[name.topic] += key.changes
    keys = Counter(name.topic for name in selection.chosen)
    left = [_left(key, environment) for key in selection.left]
    return RedriveReport(dead_letter, dry_run, dict(changes), dict(keys), left)


def _left(key: ParkedKey, environment: Environment) -> LeftKey:
    commit_timestamp_us = OrderKey.decode(key.first).commit_timestamp_us
    return LeftKey(
        topic=key.name.topic,
        key=_shown_key(key.name.key, environment)[:_KEY_SHOWN_MAX],
        changes=key.changes,
        first_commit_timestamp=format_rfc3339(commit_timestamp_us * NS_PER_US),
        reason=key.reason,
        error=key.error,
    )


def _shown_key(key: bytes, environment: Environment) -> str:
    """Return a key as JSON, or in hexadecimal if it cannot be decoded.

    Raises nothing: a report that failed after the commit would hide the changes that were put back.
    """
    try:
        if key.startswith(b"{"):  # a framed key begins with a zero byte
            return key.decode()
        schema_id, body = unframe(key)
        schema = fastavro.parse_schema(environment.registry.schema(schema_id))
        decoded = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
        return json.dumps(decoded, default=str, ensure_ascii=False)
    except (TidegateError, ValueError, TypeError, LookupError, EOFError):
        return f"0x{key.hex()}"
