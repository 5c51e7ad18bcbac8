"""`tidegate-producer dead-letters`: flags, and what it prints."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from tidegate.producer.fleet_config import FleetConfig
from tidegate.program.logs import start_log
from tidegate.program.settings_flags import ConfigFile, with_flags


def add_dead_letters_command(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command("dead-letters")(with_flags(FleetConfig)(dead_letters))


def dead_letters(
    config: ConfigFile = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="How many rows are shown, the newest first.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, of all of them.")] = False,
    **flags: Any,
) -> None:
    """List what is in the dead-letter topic, by reason and by table or file; changes nothing."""
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import dead_letters as command  # noqa: PLC0415 - loads gRPC

    with Console(stderr=True).status("connecting") as status:

        def show(what: str, done: int) -> None:
            _show(status, what, done)

        report = command.dead_letters(settings, progress=show)
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        Console().print(command.dead_letters_table(report, rows_max=limit))


def _show(status: Status, what: str, done: int) -> None:
    status.update(f"{what}: {done}" if done else what)
