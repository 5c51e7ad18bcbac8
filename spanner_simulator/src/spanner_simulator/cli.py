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
from typing import Annotated

import typer

from spanner_simulator.core.change_streams.churn import CHURN_LIFE_MS_MAX, CHURN_LIVE_MAX
from spanner_simulator.ddl_file import split_ddl

# Packages of which the program needs the generated messages (their module `types`) alone.
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


@app.command(epilog=_EXAMPLE)
def run(
    host: Annotated[
        str, typer.Option(help="Address to listen on.", rich_help_panel=_ADDRESSES)
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="gRPC port; 0: any free one.", rich_help_panel=_ADDRESSES
        ),
    ] = 0,
    control_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="HTTP control port; 0: any free one.", rich_help_panel=_ADDRESSES
        ),
    ] = 0,
    seed: Annotated[
        int, typer.Option(help="Seed of everything random.", rich_help_panel=_HISTORY)
    ] = 0,
    equal_timestamps: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Probability that concurrent transactions share a commit timestamp.",
            rich_help_panel=_HISTORY,
        ),
    ] = 0.0,
    frozen_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Freeze the clock at this RFC 3339 time; without it, the clock shows real time.",
            rich_help_panel=_HISTORY,
        ),
    ] = None,
    stream_partitions: Annotated[
        int,
        typer.Option(
            min=1,
            max=10_000,
            help="Stream partitions of a new change stream.",
            rich_help_panel=_STREAMS,
        ),
    ] = 2,
    churn: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=CHURN_LIFE_MS_MAX,
            metavar="MEAN_LIFE_MS",
            help="Split, merge and move the stream partitions of every change stream at random, "
            "each after a life with this mean in ms; without it, only on command.",
            rich_help_panel=_STREAMS,
        ),
    ] = None,
    churn_live_max: Annotated[
        int,
        typer.Option(
            min=1,
            max=CHURN_LIVE_MAX,
            help="At so many live stream partitions of a change stream, --churn merges instead of "
            "splitting.",
            rich_help_panel=_STREAMS,
        ),
    ] = 64,
    linger_ms: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            help="How long a waiting query collects records before it sends them.",
            rich_help_panel=_STREAMS,
        ),
    ] = 5,
    kept_mib: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000,
            help="MiB of encoded change records that a database keeps for the next reader.",
            rich_help_panel=_STREAMS,
        ),
    ] = 256,
    separate_children: Annotated[
        bool,
        typer.Option(
            "--separate-children",
            help="Announce each child stream partition in a record of its own.",
            rich_help_panel=_STREAMS,
        ),
    ] = False,
    strict_emulator: Annotated[
        bool,
        typer.Option(
            "--strict-emulator",
            help="Keep retention to 1 to 7 days, by default 1, as Google's emulator does.",
            rich_help_panel=_STREAMS,
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep databases here over restarts; without it, they end with the program.",
            rich_help_panel=_DATABASE,
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Create this database at the start.", rich_help_panel=_DATABASE
        ),
    ] = None,
    ddl_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="FILE",
            help="Its schema: DDL statements that end with semicolons.",
            rich_help_panel=_DATABASE,
        ),
    ] = None,
    dialect: Annotated[
        _Dialect, typer.Option(help="Its dialect.", rich_help_panel=_DATABASE)
    ] = _Dialect.GOOGLE,
    instance: Annotated[
        str, typer.Option(metavar="ID", help="Its instance.", rich_help_panel=_DATABASE)
    ] = "test-instance",
    project: Annotated[
        str, typer.Option(metavar="ID", help="Its project.", rich_help_panel=_DATABASE)
    ] = "test-project",
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
        "kept_mib": kept_mib,
        "linger_ms": linger_ms,
        "churn_mean_life_ms": churn,
        "churn_live_max": churn_live_max,
        "separate_children": separate_children,
        "strict_emulator": strict_emulator,
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

    Importing them takes longer than everything else at the start. A package that stands in
    `sys.modules` already is not executed when one of its modules is imported.
    """
    for name in _CLIENT_PACKAGES:
        spec = find_spec(name)
        if spec is not None and name not in sys.modules:
            sys.modules[name] = module_from_spec(spec)


def main() -> None:
    """Entry point of the console script; it owns its process."""
    _leave_out_clients()
    app()
