"""The program `tidegate-spanner-simulator`: flags in, one line of JSON out when ready.

Ends cleanly on SIGTERM and SIGINT. A port that is taken, a folder that cannot be used, a flag or a
schema that makes no sense: one line on standard error and exit code 2.
"""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.spanner_simulator.control import Verbs
from tidegate.spanner_simulator.ddl_file import split_ddl
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.host import Host
from tidegate.spanner_simulator.server.keeping.data_directory import DataDirectoryError
from tidegate.spanner_simulator.server.provision import create_database
from tidegate.spanner_simulator.simulator import PortTakenError, SimulatorConfig, serve

__all__ = ["main"]

_ADDRESSES = "Where it listens"
_HISTORY = "Chance and time"
_STREAMS = "Change streams"
_DATABASE = "A database from the start"
_EXAMPLE = """Example, a database with its schema for a program in any language:

$ tidegate-spanner-simulator --port 9010 --database bank --ddl-file schema.sql

$ SPANNER_EMULATOR_HOST=127.0.0.1:9010 your-program

When it is ready it prints one line of JSON with its two addresses, "grpc" and "control".
GET http://CONTROL/ lists what can be asked of it: splits, merges, faults, time, the commit log.
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Dialect(StrEnum):
    GOOGLE = "GOOGLE_STANDARD_SQL"
    POSTGRES = "POSTGRESQL"


@dataclass(frozen=True, slots=True)
class _FirstDatabase:
    """What is to be there when the first client calls."""

    project: str
    instance: str
    database: str
    dialect: Literal["GOOGLE_STANDARD_SQL", "POSTGRESQL"]
    statements: list[str]

    async def create(self, host: Host) -> None:
        """Create it, unless an earlier run has."""
        try:
            await create_database(
                host,
                project=self.project,
                instance=self.instance,
                database=self.database,
                statements=self.statements,
                dialect=self.dialect,
            )
        except SpannerError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            name = f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"
            dialect = host.database(name).database.catalogue.dialect
            if dialect != self.dialect:
                raise SpannerError(
                    Code.FAILED_PRECONDITION, f"{self.database} is there, in the dialect {dialect}"
                ) from error


def _announce(grpc_address: str, control_address: str) -> None:
    typer.echo(json.dumps({"grpc": grpc_address, "control": control_address}))


async def _run(config: SimulatorConfig, first: _FirstDatabase | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(config, Verbs(), _announce, stop, prepare=first.create if first else None)


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
    seed: Annotated[int, typer.Option(help="Seed of all chance.", rich_help_panel=_HISTORY)] = 0,
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
            help="Let the clock stand still at this RFC 3339 time; without it, time is real.",
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
    linger_ms: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            help="How long a waiting query lets news gather.",
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
) -> None:
    """Run a Spanner with real change streams, for SPANNER_EMULATOR_HOST."""
    if ddl_file is not None and database is None:
        raise typer.BadParameter("--ddl-file needs --database")
    try:
        config = SimulatorConfig(
            host=host,
            port=port,
            control_port=control_port,
            seed=seed,
            stream_partitions=stream_partitions,
            equal_timestamps=equal_timestamps,
            frozen_at=frozen_at,
            data_directory=data,
            kept_mib=kept_mib,
            linger_ms=linger_ms,
            separate_children=separate_children,
            strict_emulator=strict_emulator,
        )
        first = None
        if database is not None:
            text = "" if ddl_file is None else ddl_file.read_text("utf-8")
            ddl = split_ddl(text, dialect.value)
            first = _FirstDatabase(project, instance, database, dialect.value, ddl)
        asyncio.run(_run(config, first))
    except PortTakenError as error:
        _give_up(f"cannot listen on {error}: the address is in use; choose another port")
    except SpannerError as error:
        _give_up(f"cannot create the database: {error.message}")
    except (ValueError, OSError, DataDirectoryError) as error:
        _give_up(str(error))


def _give_up(message: str) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(2)


def main() -> None:
    """Entry point of the console script."""
    app()
