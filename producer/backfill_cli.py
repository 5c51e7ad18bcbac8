"""`tidegate-producer backfill`: flags, and what it prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tidegate.producer.backfill.requests import CHUNK_ROWS_DEFAULT, SHARE_DEFAULT, RunState
from tidegate.producer.config import ProducerConfig
from tidegate.program.logs import start_log
from tidegate.program.settings_flags import ConfigFile, with_flags
from tidegate.schemas.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from tidegate.producer.commands.backfill import BackfillReport


def add_backfill_command(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command()(with_flags(ProducerConfig)(backfill))


def backfill(
    table: Annotated[str, typer.Argument(help="A table that the stream publishes.")],
    config: ConfigFile = None,
    chunk_rows: Annotated[
        int | None,
        typer.Option(
            min=50,
            max=20_000,
            help=f"Rows that a new run reads at one time ({CHUNK_ROWS_DEFAULT}).",
        ),
    ] = None,
    share: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=99,
            help="Percent of the time in which a chunk may hold the watermark "
            f"({SHARE_DEFAULT} for a new run); with --resume from now on.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="A condition in SQL: only rows that meet it are read."),
    ] = None,
    data_boost: Annotated[
        bool,
        typer.Option("--data-boost", help="Read rows by Data Boost, beside the instance's load."),
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Read no more until --resume.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Read on after --stop, or with another --share.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it where it is.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Only say how far it is.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who wants it, for the record.")] = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=1, help="How long to wait for the fleet.")
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """Read a table's rows while the stream runs, in chunks, and put them among its changes.

    Exit code 1 if the fleet has not taken it up in time.
    """
    chosen = [stop, resume, cancel, show]
    if sum(chosen) > 1:
        raise ConfigError(
            "--stop, --resume, --cancel and --show exclude each other", hint="Give one of them"
        )
    if where is not None and not where.strip():
        raise ConfigError("--where: the condition is empty", hint="Leave it out to read all rows")
    if where is not None and any(chosen):
        raise ConfigError(
            "--where belongs to a new run", hint="A run keeps the condition that it began with"
        )
    if data_boost and (where is not None or any(chosen)):
        raise ConfigError(
            "--data-boost belongs to a new run without --where",
            hint="Data Boost reads ranges of keys; a run keeps the way it began with",
        )
    if chunk_rows is not None and any(chosen):
        raise ConfigError(
            "--chunk-rows belongs to a new run", hint="A run keeps the size that it began with"
        )
    if share is not None and any(chosen) and not resume:
        raise ConfigError(
            "--share belongs to a new run or to --resume", hint="Leave it out, or give --resume"
        )
    settings = ProducerConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import backfill as command  # noqa: PLC0415 - loads Kafka's client

    states = (RunState.STOPPED, RunState.RUNNING, RunState.CANCELLED, None)
    with Console(stderr=True).status("connecting") as status:
        if any(chosen):
            state = states[chosen.index(True)]
            report = command.change_backfill(settings, table, state, share=share, by=by)
        else:
            report = command.start_backfill(
                settings, table,
                chunk_rows=chunk_rows or CHUNK_ROWS_DEFAULT, share=share or SHARE_DEFAULT,
                where=where or "", data_boost=data_boost, by=by,
                wait_s=timeout_s,
                progress=lambda what, _done: status.update(what),
            )  # fmt: skip
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        typer.echo(_shown(report))
    if not any(chosen) and not report.is_taken_up:
        raise typer.Exit(ExitCode.FAILURE)


def _shown(report: BackfillReport) -> str:
    if not report.is_taken_up:
        return f"{report.table}: run {report.run} was not taken up yet; is a worker running?"
    of = f", of rows where {report.where}" if report.where else ""
    why = f": {report.cause}" if report.cause else ""
    return (
        f"{report.table}: run {report.run} {report.state}, {report.chunks:,} chunks begun{of}{why}"
    )
