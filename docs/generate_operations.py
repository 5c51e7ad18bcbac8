"""Writes the tables of `reference/` that follow from the sources: settings, metrics, exit codes.

They are between `<!-- generated: NAME -->` and `<!-- end -->`; everything else on these pages is
written by hand.  `./dev docs` runs this, and a test fails while a page is stale.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidegate.local_stack.config import LocalStackConfig
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.cli.stream_states import COMMAND_RULES, CommandRule, StreamState, drawing
from tidegate.producer.config import ProducerConfig
from tidegate.producer.observation.metrics import METRICS as PRODUCER_METRICS
from tidegate.program.java import JAVA_MIN
from tidegate.program.settings import Settings, has_flag
from tidegate.program.spark_versions import DELTA, SPARK_LINES
from tidegate.program.status_server import Metric
from tidegate.schemas.errors import ExitCode
from tidegate.spark_consumer.config import ConsumerConfig, spark_packages
from tidegate.spark_consumer.kafka.client_options import (
    JAVA_OPTIONS,
    REFUSED_OPTIONS,
    SHARED_OPTIONS,
    TRANSLATED_OPTIONS,
)
from tidegate.spark_consumer.metrics import METRICS as CONSUMER_METRICS

FOLDER = Path(__file__).with_name("reference")

_BLOCK = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# What a default that is computed is, in words.
_COMPUTED: dict[Callable[..., Any], str] = {
    socket.gethostname: "this host's name",
    spark_packages: "those of the installed Spark ([versions](versions.md))",
}


def generated(text: str) -> str:
    """Return the page with new generated tables; raises KeyError for an unknown one."""
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def settings_table(settings: type[Settings]) -> str:
    """Return name, default, allowed values and meaning of every setting."""
    rows = (
        (f"`{name}`", _default(field), _allowed(field), field.description or "")
        for name, field in settings.model_fields.items()
    )
    return _table(("setting", "default", "values", "meaning"), rows)


def metrics_table(prefix: str, metrics: Iterable[Metric]) -> str:
    """Return name, kind, labels and meaning of every metric, named as a scrape shows it."""
    rows = (
        (
            f"`{prefix}_{metric.name}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.meaning,
        )
        for metric in metrics
    )
    return _table(("metric", "kind", "labels", "meaning"), rows)


def exit_codes() -> str:
    """Return number and meaning of every exit code."""
    return _table(("exit code", ""), ((str(int(code)), code.meaning) for code in ExitCode))


def _condition(rule: CommandRule) -> str:
    if rule.needs_readers:
        return "if read"
    return "if paused" if rule.needs_pause else "yes"


def command_states() -> str:
    """Return in which states each command is permitted."""
    rows = (
        (
            f"`{command}`{' (workers are stopped)' if rule.is_offline else ''}",
            *(_condition(rule) if state in rule.states else "" for state in StreamState),
        )
        for command, rule in COMMAND_RULES.items()
    )
    return _table(("command", *(state.value for state in StreamState)), rows)


def names(found: Iterable[str]) -> str:
    """Return names, in order, as one line of code words."""
    return ", ".join(f"`{name}`" for name in sorted(found))


def spark_versions() -> str:
    """Return what belongs to each minor version of Spark."""
    head = ("Spark", "tested", "Kafka", "Kafka client", "Avro", "Delta", "Iceberg", "Hadoop")
    rows = (
        (
            line.minor,
            line.pyspark,
            line.kafka,
            line.kafka_clients,
            line.avro,
            DELTA,
            line.iceberg or "none yet",
            line.hadoop,
            f"{JAVA_MIN} to {line.java_max}",
            f"3.11 to {line.python_max}",
        )
        for line in SPARK_LINES
    )
    return _table((*head, "Java", "Python"), rows)


def spark_packages_list() -> str:
    """Return the Maven coordinates for each minor version of Spark."""
    rows = (
        (line.minor, f"`{line.packages}`", f"`{line.iceberg_packages}`" if line.iceberg else "")
        for line in SPARK_LINES
    )
    return _table(("Spark", "packages", "for the Iceberg sinks"), rows)


def consumer_options() -> str:
    """Return which of Kafka's two clients gets which options."""
    rows = (
        ("both, by the same name", names(SHARED_OPTIONS)),
        ("both: librdkafka as it is, Java's client in its own words", names(TRANSLATED_OPTIONS)),
        ("Java's client, with which Spark reads", names(JAVA_OPTIONS)),
        ("librdkafka, with which everything else is done", "every other option that it knows"),
    )
    return _table(("goes to", "options"), rows)


def refused_options() -> str:
    """Return the options that the consumer refuses, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in REFUSED_OPTIONS.items():
        by_reason.setdefault(reason, []).append(name)
    rows = ((names(found), reason) for reason, found in by_reason.items())
    return _table(("refused", "because"), rows)


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return _COMPUTED[field.default_factory]
    if field.default is PydanticUndefined:
        return "**needed**"
    if isinstance(field.default, SecretStr) or field.default in ("", {}):
        return "empty"
    return f"`{field.default}`"


def _allowed(field: FieldInfo) -> str:
    words = []
    if get_origin(field.annotation) is Literal:
        words.append(" or ".join(f"`{choice}`" for choice in get_args(field.annotation) if choice))
    least = [rule.ge for rule in field.metadata if isinstance(rule, Ge)]
    most = [rule.le for rule in field.metadata if isinstance(rule, Le)]
    if least and most:
        words.append(f"{least[0]} to {most[0]}")
    elif least:
        words.append(f"from {least[0]}")
    if any(isinstance(rule, MinLen) for rule in field.metadata):
        words.append("not empty")
    if not has_flag(field):
        words.append("no flag")
    return ", ".join(words)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


TABLES: dict[str, Callable[[], str]] = {
    "producer settings": lambda: settings_table(ProducerConfig),
    "consumer settings": lambda: settings_table(ConsumerConfig),
    "console settings": lambda: settings_table(ConsoleConfig),
    "local settings": lambda: settings_table(LocalStackConfig),
    "producer owned options": lambda: names(ProducerConfig.owned_kafka_options),
    "consumer options": consumer_options,
    "consumer refused options": refused_options,
    "exit codes": exit_codes,
    "spark versions": spark_versions,
    "spark packages": spark_packages_list,
    "stream states": drawing,
    "commands by state": command_states,
    "producer metrics": lambda: metrics_table("tidegate_producer", PRODUCER_METRICS),
    "consumer metrics": lambda: metrics_table("tidegate_consumer", CONSUMER_METRICS),
}


def main() -> None:
    """Update the pages that are stale."""
    for page in sorted(FOLDER.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = generated(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
        if _BLOCK.search(before):
            sys.stdout.write(f"{page.name}: {'up to date' if after == before else 'written'}\n")


if __name__ == "__main__":
    main()
