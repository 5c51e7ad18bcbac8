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
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from rich.console import Console
from rich.table import Table

from tidegate.schemas.errors import ConfigError, TidegateError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.config import ConsumerConfig, load_config
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.subscription import Subscription

__all__ = ["app", "main"]

app = typer.Typer(
    help="Releases changes from Kafka to Delta tables, in commit order, each exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of settings; flags and environment win."),
]


def _setting(name: str) -> Any:
    field = ConsumerConfig.model_fields[name]
    flag = "--" + name.replace("_", "-")
    return typer.Option(flag, help=field.description, show_default=False)


@app.command()
def run(
    config: _ConfigFile = None,
    bootstrap_servers: Annotated[str | None, _setting("bootstrap_servers")] = None,
    registry_url: Annotated[str | None, _setting("registry_url")] = None,
    prefix: Annotated[str | None, _setting("prefix")] = None,
    output: Annotated[str | None, _setting("output")] = None,
    checkpoint: Annotated[str | None, _setting("checkpoint")] = None,
    changes_per_batch_max: Annotated[int | None, _setting("changes_per_batch_max")] = None,
    trigger_interval_ms: Annotated[int | None, _setting("trigger_interval_ms")] = None,
    release_rows_max: Annotated[int | None, _setting("release_rows_max")] = None,
    until: Annotated[str | None, _setting("until")] = None,
    master: Annotated[str | None, _setting("master")] = None,
    jars: Annotated[str | None, _setting("jars")] = None,
    log_level: Annotated[str | None, _setting("log_level")] = None,
    metrics_port: Annotated[int | None, _setting("metrics_port")] = None,
) -> None:
    """Run the gate until it is stopped (SIGTERM, Ctrl-C), or until it has caught up."""
    begun_us = time.time_ns() // 1_000
    flags = {name: value for name, value in locals().items() if name in ConsumerConfig.model_fields}
    with _errors():
        settings = load_config(config, flags)
        configure_logging(settings.log_level)
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
    with _errors():
        state = _newest_state(checkpoint)
    figures = _figures(state)
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, str(value))
    Console().print(table)


def main() -> None:
    """Entry point of `tidegate-consumer`."""
    app()


def configure_logging(level: str) -> None:
    """Write JSON lines to standard error."""
    # When the JVM has been stopped, py4j complains at length about every connection that it had.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _require_surroundings(settings: ConsumerConfig) -> None:
    from tidegate.spark_consumer.adapters.kafka import (  # noqa: PLC0415 - only `run` needs Kafka
        require_registry,
        require_topics,
    )

    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        message = "pyspark is not installed"
        hint = "Install tidegate[local], or use the Python of a Spark installation"
        raise ConfigError(message, hint=hint) from error
    require_registry(settings.registry_url)
    subscription = Subscription(TopicNames(settings.prefix))
    require_topics(settings.bootstrap_servers, subscription)


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
    batches = sorted(number_in(name) for name in folder.names(STATES))
    content = folder.read_json(state_file(batches[-1])) if batches else None
    if content is None:
        message = "there is no state in this checkpoint"
        raise ConfigError(message, hint="Check --checkpoint", checkpoint=checkpoint)
    return State.from_json(content)


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


@contextmanager
def _errors() -> Iterator[None]:
    """Print a known error as one line, and leave with its exit code."""
    try:
        yield
    except TidegateError as error:
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"error: {error}")
        raise typer.Exit(error.exit_code) from None
