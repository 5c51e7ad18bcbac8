"""The commands of `tidegate-producer` that run a worker or change nothing: flags and output.

Each command is in the module of its name, which is imported when it runs, because Google's and
Kafka's clients take a second to load.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.cli.operations import add_operations
from tidegate.producer.cli.report import AllAsJson, AsJson, ProgressLine, print_answer, print_json
from tidegate.producer.config import DISCOVER_FLAGS, DiscoverConfig, FleetConfig, ProducerConfig
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
from tidegate.program.logs import start_log, start_log_of_run
from tidegate.program.settings_flags import ConfigFile, with_flags, with_settings
from tidegate.schemas.errors import ConfigError, ExitCode
from tidegate.schemas.instants import NS_PER_US

app = new_app(
    description="Publish a Spanner change stream to Kafka, in commit order per key, exactly once.",
    extra=Extra("producer", ("google.cloud.spanner_v1", "grpc")),
)
schemas_app = typer.Typer(
    help="The schemas of the stream's topics, without a worker.", no_args_is_help=True
)


def main() -> None:
    """Entry point of the console script."""
    # gRPC's core writes its own log lines; it reads this variable once, when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    run_program(app)


@app.command()
@with_settings(ProducerConfig, log=start_log_of_run)
def run(settings: ProducerConfig) -> None:
    """Run one worker until SIGTERM or Ctrl-C; a second signal ends it at once.

    At the first one it publishes what it has read, and leaves its slots to other workers.
    """
    from tidegate.producer.cli import run as command

    command.run(settings)


@app.command()
@with_settings(ProducerConfig)
def check(settings: ProducerConfig) -> None:
    """Check settings, Spanner, Kafka and the registry, and change nothing."""
    from tidegate.producer.cli import check as command

    for line in command.check(settings):
        typer.echo(line)


@app.command()
@with_flags(DiscoverConfig, only=DISCOVER_FLAGS)
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
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """List the objects of a source with fields, types and keys; needs no stream."""
    from tidegate.producer.cli import discover as command

    if datastream:
        _require_no_other_source(flags)
        with ProgressLine("listing files") as progress:
            objects = command.discover_files(datastream, files_max=files, progress=progress)
    else:
        settings = DiscoverConfig.load(config, **flags)
        start_log(settings)
        with ProgressLine("asking Spanner"):
            objects = command.discover_spanner(settings)
    print_answer(
        lambda: command.as_json(objects), lambda: command.discovery_table(objects), as_json=as_json
    )


def _require_no_other_source(flags: dict[str, Any]) -> None:
    """Raise ConfigError if flags name a database in addition to the files."""
    flag_names = [
        f"--{name.replace('_', '-')}"
        for name, value in flags.items()
        if value is not None and name not in {"log_level", "log_format"}
    ]
    if flag_names:
        raise ConfigError(
            f"--datastream and {', '.join(flag_names)} name two sources", hint="Give one of them"
        )


@app.command()
@with_settings(FleetConfig)
def status(
    settings: FleetConfig,
    slowest: Annotated[
        int, typer.Option("--slowest", min=0, help="How many stream partitions to list.")
    ] = 10,
    as_json: AllAsJson = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Also ask the worker that serves its metrics there how many stream partitions "
            "are queued and paused; may be given more than once.",
        ),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.5,
            help="Print it again after so many seconds, with the rate, until Ctrl-C.",
        ),
    ] = None,
) -> None:
    """Print how far the fleet is, as its progress topic says; needs no Spanner, changes nothing."""
    from tidegate.producer.cli import status as command
    from tidegate.producer.cli.status_table import status_table

    statuses = command.follow(settings, metrics=metrics or (), interval_s=watch or 0.0)
    if as_json:
        for newest in statuses if watch else islice(statuses, 1):
            print_json(command.as_json(newest))
        return
    with ProgressLine("reading the progress topic"):
        first = status_table(next(statuses), slowest=slowest)
    if watch is None:
        Console().print(first)
        return
    with suppress(KeyboardInterrupt), Live(first, auto_refresh=False) as live:
        for newest in statuses:
            live.update(status_table(newest, slowest=slowest), refresh=True)


class GraphForm(StrEnum):
    """The output format of `lineage`."""

    TREE = "tree"
    MERMAID = "mermaid"
    DOT = "dot"


@app.command()
@with_settings(FleetConfig)
def lineage(
    settings: FleetConfig,
    generations: Annotated[
        int,
        typer.Option(
            "--generations", min=0, help="How many generations of finished ancestors are shown."
        ),
    ] = 1,
    every: Annotated[bool, typer.Option("--all", help="Show all generations.")] = False,
    form: Annotated[
        GraphForm, typer.Option("--format", help="A tree to read, or a graph to draw.")
    ] = GraphForm.TREE,
    as_json: AsJson = False,
) -> None:
    """Print which stream partition came from which; needs no Spanner, changes nothing."""
    from tidegate.producer.cli import lineage as command

    with ProgressLine("reading the progress topic"):
        graph = command.lineage(settings, generations=None if every else generations)
    now_us = time.time_ns() // NS_PER_US
    if as_json:
        print_json(command.as_json(graph))
    elif form is GraphForm.TREE:
        Console().print(command.as_tree(graph, now_us=now_us))
    else:
        write = command.as_dot if form is GraphForm.DOT else command.as_mermaid
        sys.stdout.write(write(graph, now_us=now_us))


@app.command()
@with_settings(FleetConfig)
@with_flags(ConsoleConfig)
def console(settings: FleetConfig, **flags: Any) -> None:
    """Serve pages that show the stream, its fleet and its releases, until a signal; read only."""
    from tidegate.producer.cli.console import command

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    own = ConsoleConfig.load(**flags)
    command.serve(settings, own, stopping=stopping, show=typer.echo)


@app.command("dead-letters")
@with_settings(FleetConfig)
def dead_letters(
    settings: FleetConfig,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="How many rows are shown, the newest first.")
    ] = 20,
    as_json: AllAsJson = False,
) -> None:
    """List what is in the dead-letter topic, by reason and by table or file; changes nothing."""
    from tidegate.producer.cli import dead_letters as command

    with ProgressLine() as progress:
        report = command.dead_letters(settings, progress=progress)
    print_answer(
        report.as_json,
        lambda: command.dead_letters_table(report, rows_max=limit),
        as_json=as_json,
    )


@schemas_app.command("list")
@with_settings(FleetConfig)
def list_schemas(settings: FleetConfig, as_json: AsJson = False) -> None:
    """List the registry's subjects of the stream; needs no Spanner, changes nothing."""
    from tidegate.producer.cli import schemas as command

    with _asking_registry():
        subjects = command.subjects(settings)
    print_answer(
        lambda: json.dumps([asdict(subject) for subject in subjects]),
        lambda: command.subjects_table(subjects),
        as_json=as_json,
    )


@schemas_app.command("check")
@with_settings(ProducerConfig)
def check_schemas(settings: ProducerConfig) -> None:
    """Print the subjects that `run` would add a version to; changes nothing.

    Exit code 1 if there is one; a table that cannot be published is an error.
    """
    from tidegate.producer.cli import schemas as command

    with _asking_registry():
        missing = command.missing(settings)
    for subject in missing:
        typer.echo(subject)
    if missing:
        raise typer.Exit(ExitCode.FAILURE)


@schemas_app.command("register")
@with_settings(ProducerConfig)
def register_schemas(settings: ProducerConfig) -> None:
    """Register what is missing and print its subjects; creates no topic, needs no worker."""
    from tidegate.producer.cli import schemas as command

    with _asking_registry():
        registered = command.register(settings)
    for subject in registered:
        typer.echo(subject)


@schemas_app.command("show")
@with_settings(FleetConfig)
def show_schema(
    settings: FleetConfig,
    table: Annotated[str, typer.Argument(help="As Spanner names it; with its schema, if named.")],
    is_key: Annotated[bool, typer.Option("--key", help="Of the keys, not of the values.")] = False,
) -> None:
    """Print the newest registered schema of a table; needs no Spanner, changes nothing."""
    from tidegate.producer.cli import schemas as command

    with _asking_registry():
        schema = command.shown(settings, table, is_key=is_key)
    typer.echo(json.dumps(schema, indent=2))


@schemas_app.command("asyncapi")
@with_settings(FleetConfig)
def describe_topics(settings: FleetConfig) -> None:
    """Print the stream's topics as an AsyncAPI document; needs no Spanner, changes nothing."""
    from tidegate.producer.cli import schemas as command
    from tidegate.producer.cli.asyncapi import asyncapi

    with _asking_registry():
        topics = command.stream_topics(settings)
    typer.echo(json.dumps(asyncapi(settings, topics), indent=2))


def _asking_registry() -> ProgressLine:
    return ProgressLine("asking Kafka and the registry")


add_operations(app)
app.add_typer(schemas_app, name="schemas")
