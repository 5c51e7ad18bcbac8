"""The program `spanner-simulator`: reads the flags and runs the program.

It ends cleanly on SIGTERM and SIGINT. A port that is taken, a folder that cannot be used, an
invalid flag or schema: one line on standard error and exit code 2.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from spanner_simulator.core.change_streams.churn import CHURN_LIFE_MS_MAX, CHURN_LIVE_MAX
from spanner_simulator.ddl_file import split_ddl

# Packages from which the program needs only the generated messages (their module `types`).
_CLIENT_PACKAGES = (
    "google.cloud.spanner_v1",
    "google.cloud.spanner_admin_database_v1",
    "google.cloud.spanner_admin_instance_v1",
)
_ADDRESSES = "Where it listens"
_HISTORY = "Randomness and time"
_STREAMS = "Change streams"
_DATABASE = "A database from the start"
_EXAMPLE = """Example, a database with its schema for a program in any language:

$ spanner-simulator --port 9010 --database bank --ddl-file schema.sql

$ SPANNER_EMULATOR_HOST=127.0.0.1:9010 your-program

When it is ready it prints one line of JSON with its two addresses, "grpc" and "control".
GET http://CONTROL/ lists its verbs: splits, merges, faults, time, the commit log.
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Dialect(StrEnum):
    GOOGLE = "GOOGLE_STANDARD_SQL"
    POSTGRES = "POSTGRESQL"


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"spanner-simulator {version('spanner-simulator')}")
        raise typer.Exit


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


@app.command(epilog=_EXAMPLE)
def run(
    host: Annotated[str, _option(_ADDRESSES, "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _option(_ADDRESSES, "gRPC port; 0: any free one.", min=0, max=65535)] = 0,
    control_port: Annotated[
        int, _option(_ADDRESSES, "HTTP control port; 0: any free one.", min=0, max=65535)
    ] = 0,
    seed: Annotated[int, _option(_HISTORY, "Seed of everything random.")] = 0,
    equal_timestamps: Annotated[
        float,
        _option(
            _HISTORY,
            "Probability that concurrent transactions share a commit timestamp.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    frozen_at: Annotated[
        str | None,
        _option(
            _HISTORY,
            "Freeze the clock at this RFC 3339 time; without it, the clock shows real time.",
            metavar="TIME",
        ),
    ] = None,
    stream_partitions: Annotated[
        int, _option(_STREAMS, "Stream partitions of a new change stream.", min=1, max=10_000)
    ] = 2,
    churn: Annotated[
        int | None,
        _option(
            _STREAMS,
            "Split, merge and move the stream partitions of every change stream at random, "
            "each after a life with this mean in ms; without it, only on command.",
            min=1,
            max=CHURN_LIFE_MS_MAX,
            metavar="MEAN_LIFE_MS",
        ),
    ] = None,
    churn_live_max: Annotated[
        int,
        _option(
            _STREAMS,
            "At so many live stream partitions of a change stream, --churn merges instead of "
            "splitting.",
            min=1,
            max=CHURN_LIVE_MAX,
        ),
    ] = 64,
    separate_children: Annotated[
        bool,
        _option(
            _STREAMS,
            "Announce each child stream partition in a record of its own.",
            "--separate-children",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        _option(
            _DATABASE,
            "Keep databases here over restarts; without it, they end with the program.",
            metavar="FOLDER",
        ),
    ] = None,
    database: Annotated[
        str | None, _option(_DATABASE, "Create this database at the start.", metavar="ID")
    ] = None,
    ddl_file: Annotated[
        Path | None,
        _option(
            _DATABASE,
            "Its schema: DDL statements that end with semicolons.",
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="FILE",
        ),
    ] = None,
    dialect: Annotated[_Dialect, _option(_DATABASE, "Its dialect.")] = _Dialect.GOOGLE,
    instance: Annotated[str, _option(_DATABASE, "Its instance.", metavar="ID")] = "test-instance",
    project: Annotated[str, _option(_DATABASE, "Its project.", metavar="ID")] = "test-project",
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Run a Spanner with real change streams, for SPANNER_EMULATOR_HOST."""
    if ddl_file is not None and database is None:
        raise typer.BadParameter("--ddl-file needs --database")
    from spanner_simulator.program import (  # noqa: PLC0415  # takes longer than all of --help
        FirstDatabase,
        ProgramError,
        run_program,
    )

    settings = {
        "host": host,
        "port": port,
        "control_port": control_port,
        "seed": seed,
        "stream_partitions": stream_partitions,
        "equal_timestamps": equal_timestamps,
        "frozen_at": frozen_at,
        "data_directory": data,
        "churn_mean_life_ms": churn,
        "churn_live_max": churn_live_max,
        "separate_children": separate_children,
    }
    try:
        first = None
        if database is not None:
            text = "" if ddl_file is None else ddl_file.read_text("utf-8")
            ddl = split_ddl(text, dialect.value)
            first = FirstDatabase(project, instance, database, dialect.value, ddl)
        run_program(settings, first)
    except (ProgramError, ValueError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error


def _leave_out_clients() -> None:
    """Keep Google's client libraries out of this process, which only needs their messages.

    Importing them takes longer than everything else at the start.  A package that is already in
    `sys.modules` is not executed when one of its modules is imported.
    """
    for name in _CLIENT_PACKAGES:
        spec = find_spec(name)
        if spec is not None and name not in sys.modules:
            sys.modules[name] = module_from_spec(spec)


def main() -> None:
    """Entry point of the console script; it owns its process."""
    _leave_out_clients()
    app()
