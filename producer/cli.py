"""`tidegate-producer`: parse, call, map errors to exit codes; nothing else.

0 done (drained), 1 failure, 2 usage, settings or something unreachable, 70 a broken invariant.
"""

from __future__ import annotations

import inspect
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer
from pydantic_core import PydanticUndefined

from tidegate.producer.app import check, start
from tidegate.producer.config import ProducerConfig
from tidegate.schemas.errors import InvariantViolation, TidegateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

__all__ = ["app", "main"]

_NO_FLAGS = frozenset({"kafka_options", "registry_user_info"})
"""Secrets are not for command lines, which other users of a machine can read."""

app = typer.Typer(
    help="Publish a Spanner change stream to Kafka, in commit order per key, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except TidegateError as error:
        kind = "broken invariant" if isinstance(error, InvariantViolation) else "error"
        sys.stderr.write(f"{kind}: {error}\n")
        sys.exit(error.exit_code)


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per setting, so that settings are described in one place."""
    config = Annotated[Path | None, typer.Option(help="TOML file; environment and flags win.")]
    parameters = [
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=config)
    ]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(field)
        )
        for name, field in ProducerConfig.model_fields.items()
        if name not in _NO_FLAGS
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _annotation(field: FieldInfo) -> Any:
    kind = int if field.annotation is int else str
    default = "" if field.default in (PydanticUndefined, "") else f" Default: {field.default}."
    return Annotated[kind | None, typer.Option(help=f"{field.description}.{default}")]


@app.command()
@_with_flags
def run(config: Path | None = None, **flags: Any) -> None:
    """Run one worker until SIGTERM or SIGINT, which drain; a second signal ends it at once."""
    settings = ProducerConfig.load(config, **flags)
    _log_to_stderr(settings.log_level)
    worker = start(settings)

    def on_signal(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        worker.request_drain()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    worker.run()


@app.command(name="check")
@_with_flags
def check_command(config: Path | None = None, **flags: Any) -> None:
    """Check settings, Spanner, Kafka and the registry, and change nothing."""
    settings = ProducerConfig.load(config, **flags)
    _log_to_stderr(settings.log_level)
    for line in check(settings):
        typer.echo(line)


def _log_to_stderr(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
