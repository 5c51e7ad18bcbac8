"""`tidegate-producer discover`: flags, and what it prints."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from tidegate.producer.discover_config import DISCOVER_FLAGS, DiscoverConfig
from tidegate.producer.source_objects import Discovery
from tidegate.program.logs import start_log
from tidegate.program.settings_flags import ConfigFile, with_flags
from tidegate.schemas.errors import ConfigError


def add_discover_command(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command()(with_flags(DiscoverConfig, only=DISCOVER_FLAGS)(discover))


def discover(
    config: ConfigFile = None,
    datastream: Annotated[
        str,
        typer.Option(
            "--datastream",
            metavar="LOCATION",
            help="Path of a Datastream stream's files: a folder, gs://BUCKET/PATH or "
            "s3://BUCKET/PATH. No setting is needed then.",
        ),
    ] = "",
    files: Annotated[
        int,
        typer.Option(
            "--files",
            min=0,
            help="How many of the newest files of each object are read; 0: all.",
        ),
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """List the objects of a source with fields, types and keys; needs no stream."""
    from tidegate.producer.commands import discover as command  # noqa: PLC0415 - loads gRPC
    from tidegate.producer.commands.discovery_table import discovery_table  # noqa: PLC0415 - as above

    stderr = Console(stderr=True)
    if datastream:
        _require_no_other_source(flags)
        with stderr.status("listing files") as status:
            found = command.discover_files(
                datastream, files_max=files, progress=partial(_show, status)
            )
    else:
        settings = DiscoverConfig.load(config, **flags)
        start_log(settings)
        with stderr.status("asking Spanner"):
            found = command.discover_spanner(settings)
    _print(found, command.as_json if as_json else None, discovery_table)


def _print(found: Discovery, write: Any, table: Any) -> None:
    if write is not None:
        sys.stdout.write(write(found) + "\n")
    else:
        Console().print(table(found))


def _require_no_other_source(flags: dict[str, Any]) -> None:
    """Raise ConfigError if flags name a database beside the files."""
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in flags.items()
        if value is not None and name not in {"log_level", "log_format"}
    ]
    if given:
        raise ConfigError(
            f"--datastream and {', '.join(given)} name two sources", hint="Give one of them"
        )


def _show(status: Status, what: str, done: int) -> None:
    status.update(f"{what}: {done}")
