"""The commands of `tidegate-producer schemas`: parse, call, print."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from tidegate.producer.config import ProducerConfig
from tidegate.producer.fleet_config import FleetConfig
from tidegate.program.logs import start_log
from tidegate.program.settings_flags import ConfigFile, with_flags
from tidegate.schemas.errors import ExitCode

schemas_app = typer.Typer(
    help="The schemas of the stream's topics, without a worker.", no_args_is_help=True
)


@schemas_app.command("list")
@with_flags(FleetConfig)
def list_schemas(
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """List the registry's subjects of the stream; needs no Spanner, changes nothing."""
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import schemas as command  # noqa: PLC0415 - loads gRPC, see `main`

    with _asking():
        found = command.subjects(settings)
    if as_json:
        sys.stdout.write(json.dumps([asdict(one) for one in found]) + "\n")
        return
    table = Table("subject", "versions", "newest id", "compatibility")
    for one in found:
        level = one.compatibility or "the registry's"
        table.add_row(escape(one.subject), str(one.versions), str(one.schema_id), level)
    Console().print(table)


@schemas_app.command("check")
@with_flags(ProducerConfig)
def check_schemas(config: ConfigFile = None, **flags: Any) -> None:
    """Print the subjects that `run` would add a version to; changes nothing.

    Exit code 1 if there is one; a table that cannot be published is an error.
    """
    settings = ProducerConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import schemas as command  # noqa: PLC0415 - loads gRPC, see `main`

    with _asking():
        missing = command.missing(settings)
    for subject in missing:
        typer.echo(subject)
    if missing:
        raise typer.Exit(ExitCode.FAILURE)


@schemas_app.command("register")
@with_flags(ProducerConfig)
def register_schemas(config: ConfigFile = None, **flags: Any) -> None:
    """Register what is missing and print its subjects; creates no topic, needs no worker."""
    settings = ProducerConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import schemas as command  # noqa: PLC0415 - loads gRPC, see `main`

    with _asking():
        registered = command.register(settings)
    for subject in registered:
        typer.echo(subject)


@schemas_app.command("show")
@with_flags(FleetConfig)
def show_schema(
    table: Annotated[str, typer.Argument(help="As Spanner names it; with its schema, if named.")],
    config: ConfigFile = None,
    is_key: Annotated[bool, typer.Option("--key", help="Of the keys, not of the values.")] = False,
    **flags: Any,
) -> None:
    """Print the newest registered schema of a table; needs no Spanner, changes nothing."""
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import schemas as command  # noqa: PLC0415 - loads gRPC, see `main`

    with _asking():
        schema = command.shown(settings, table, is_key=is_key)
    typer.echo(json.dumps(schema, indent=2))


@schemas_app.command("asyncapi")
@with_flags(FleetConfig)
def describe_topics(config: ConfigFile = None, **flags: Any) -> None:
    """Print the stream's topics as an AsyncAPI document; needs no Spanner, changes nothing."""
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import schemas as command  # noqa: PLC0415 - loads gRPC, see `main`
    from tidegate.producer.commands.asyncapi import asyncapi  # noqa: PLC0415 - as above

    with _asking():
        topics = command.stream_topics(settings)
    typer.echo(json.dumps(asyncapi(settings, topics), indent=2))


def _asking() -> Status:
    return Console(stderr=True).status("asking Kafka and the registry")
