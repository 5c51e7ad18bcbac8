"""`tidegate-consumer`: parse, call, map errors to exit codes (`schemas.errors.ExitCode`)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Annotated, Any

import structlog
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidegate.program.command_line import new_app, run_program
from tidegate.program.logs import start_log_of_run
from tidegate.program.settings_flags import with_settings
from tidegate.schemas.errors import ExitCode
from tidegate.spark_consumer.commands import adopt as adopt_command
from tidegate.spark_consumer.commands import audit as audit_command
from tidegate.spark_consumer.commands import run as run_command
from tidegate.spark_consumer.commands import status as status_command
from tidegate.spark_consumer.commands import tail as tail_command
from tidegate.spark_consumer.config import ConsumerConfig

app = new_app(
    description="Release changes from Kafka to Delta tables, in commit order, each exactly once."
)

_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
@with_settings(ConsumerConfig, log=start_log_of_run)
def run(settings: ConsumerConfig) -> None:
    """Write releases to the output until SIGTERM or Ctrl-C, or, with --until, to the present."""
    begun_us = time.time_ns() // 1_000
    run_command.run(settings, begun_us=begun_us)


@app.command()
@with_settings(ConsumerConfig)
def adopt(settings: ConsumerConfig) -> None:
    """Accept changes that other programs made to the output's rows; prints a line for each."""
    with _shown_steps("adopt step") as step:
        changes = adopt_command.adopt(settings, step=step)
    for change in changes:
        sys.stdout.write(json.dumps(change) + "\n")


@app.command()
@with_settings(ConsumerConfig)
def audit(settings: ConsumerConfig, as_json: _AsJson = False) -> None:
    """Prove the output complete against the stream's completion markers; exit 1 if it is not."""
    with _shown_steps("audit step") as step:
        report = audit_command.audit(settings, step=step)
    if as_json:
        sys.stdout.write(json.dumps(report.content()) + "\n")
    else:
        for table in audit_command.tables_of(report):
            Console().print(table)
    raise typer.Exit(ExitCode.DONE if report.is_proved else ExitCode.FAILURE)


@contextmanager
def _shown_steps(event: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a step: live on a terminal, else as a log line `event`."""
    console = Console(stderr=True)
    if not console.is_terminal:
        log = structlog.get_logger("tidegate.spark_consumer")
        yield lambda name: log.info(event, step=name)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda name: progress.update(task, description=name)


@app.command()
def status(
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="The run's checkpoint folder.")],
    as_json: _AsJson = False,
) -> None:
    """Show how far a run has come: the newest state of a checkpoint on this machine."""
    figures = status_command.status(checkpoint)
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    for table in status_command.tables_of(figures):
        Console().print(table)


@app.command()
def tail(
    output: Annotated[str, typer.Option("--output", help="Folder of the tables, on this machine.")],
    releases: Annotated[
        int, typer.Option("--releases", min=0, help="Begin with this many of the last releases.")
    ] = 0,
    tables: Annotated[
        str, typer.Option("--tables", help="Print only these, comma-separated; empty: all.")
    ] = "",
    *,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for further releases.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON each.")] = False,
) -> None:
    """Print changes in commit order as they are released, from an output on this machine.

    On a terminal a line is cut at its width; --json, a pipe or a file has it whole.
    """
    names = tuple(name.strip() for name in tables.split(",") if name.strip())
    changes = tail_command.tail(
        output,
        releases=releases,
        tables=names,
        follow=follow,
        tell=lambda line: typer.echo(line, err=True),
    )

    def line(change: Mapping[str, Any]) -> str:
        if as_json:
            return tail_command.as_json(change)
        # COLUMNS, the terminal's width, or none in a pipe.
        width = get_terminal_size(fallback=(0, 0)).columns
        return tail_command.fitted(tail_command.as_text(change), width)

    with suppress(KeyboardInterrupt):
        for change in changes:
            sys.stdout.write(line(change) + "\n")
            sys.stdout.flush()


def main() -> None:
    """Entry point of `tidegate-consumer`."""
    run_program(app)
