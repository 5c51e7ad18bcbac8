"""The command line: `run` and `status`.

Commands parse, call, and map errors to exit codes: 0 done, 1 failure, 2 usage or settings, 70 bug.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.program import log_to_stderr, run_program
from tidegate.schemas.settings_flags import ConfigFile, with_flags
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.subscription import Subscription

__all__ = ["app", "main"]

app = typer.Typer(
    help="Releases changes from Kafka to Delta tables, in commit order, each exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
@with_flags(ConsumerConfig)
def run(config: ConfigFile = None, **flags: Any) -> None:
    """Run the gate until it is stopped (SIGTERM, Ctrl-C), or until it has caught up."""
    begun_us = time.time_ns() // 1_000
    settings = ConsumerConfig.load(config, **flags)
    log_to_stderr(settings.log_level)
    # When the JVM has been stopped, py4j complains at length about every connection that it had.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    _require_surroundings(settings)
    from tidegate.spark_consumer.spark import query  # noqa: PLC0415 - pyspark is heavy

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    query.run(settings, stop=stop, begun_us=begun_us)


@app.command()
def status(
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="Folder of the state.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how far the gate has come: the newest state of a checkpoint on this machine."""
    figures = _figures(_newest_state(checkpoint))
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, str(value))
    Console().print(table)


def main() -> None:
    """Entry point of `tidegate-consumer`."""
    run_program(app)


def _require_surroundings(settings: ConsumerConfig) -> None:
    from tidegate.spark_consumer.adapters.kafka import (  # noqa: PLC0415 - only `run` needs Kafka
        require_registry,
        require_topics,
    )
    from tidegate.spark_consumer.adapters.kafka_options import java_options  # noqa: PLC0415 - as above

    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        message = "pyspark is not installed"
        hint = "Install tidegate[local], or use the Python of a Spark installation"
        raise ConfigError(message, hint=hint) from error
    # What cannot be translated is told now, not when Spark has started.
    java_options(settings.kafka_client_options())
    user_info = settings.registry_user_info.get_secret_value()
    require_registry(settings.registry_url, user_info=user_info)
    require_topics(
        settings.bootstrap_servers,
        Subscription(TopicNames(settings.prefix)),
        options=settings.kafka_client_options(),
    )


class _Folder:
    """A `gate` folder on this machine, read without Spark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_json(self, name: str) -> dict[str, Any] | None:
        path = self._folder / name
        return json.loads(path.read_bytes()) if path.is_file() else None

    def names(self, folder: str) -> list[str]:
        path = self._folder / folder
        return sorted(one.name for one in path.glob("[!.]*")) if path.is_dir() else []


def _newest_state(checkpoint: str) -> State:
    from tidegate.spark_consumer.core.files import STATES, number_in, state_file  # noqa: PLC0415

    if "://" in checkpoint:
        message = "status reads checkpoints on this machine only"
        raise ConfigError(message, hint="Look at its gate/states folder", checkpoint=checkpoint)
    folder = _Folder(Path(checkpoint.removeprefix("file:")) / "gate")
    try:
        batches = sorted(number_in(name) for name in folder.names(STATES))
        content = folder.read_json(state_file(batches[-1])) if batches else None
    except OSError as error:
        message = f"the checkpoint cannot be read: {error.strerror}"
        raise ConfigError(message, hint="Check --checkpoint") from error
    if content is None:
        message = "there is no state in this checkpoint"
        raise ConfigError(message, hint="Check --checkpoint", checkpoint=checkpoint)
    return State.restore(content)


def _figures(state: State) -> dict[str, Any]:
    watermark = None
    if state.watermark_us > BEFORE_EVERYTHING_US:
        watermark = datetime.fromtimestamp(state.watermark_us / US_PER_SECOND, UTC).isoformat()
    return {
        "prefix": state.prefix,
        "query_id": state.query_id,
        "batch": state.batch,
        "watermark_us": state.watermark_us,
        "watermark": watermark,
        "releases": state.next_release,
        "waiting_segments": len(state.segments),
        "waiting_changes": sum(segment.rows for segment in state.segments),
        "late_changes": state.late_rows,
        "stream_has_ended": state.stream_has_ended,
        "topics": [topic.topic for topic in state.topics],
    }
