"""`tidegate-producer`: parse, call, map errors to exit codes (`schemas.errors.ExitCode`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from tidegate.producer.backfill_cli import add_backfill_command
from tidegate.producer.config import ProducerConfig
from tidegate.producer.control_cli import add_control_commands
from tidegate.producer.dead_letters_cli import add_dead_letters_command
from tidegate.producer.discover_cli import add_discover_command
from tidegate.producer.fleet_config import FleetConfig
from tidegate.producer.schemas_cli import schemas_app
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
from tidegate.program.logs import start_log, start_log_of_run
from tidegate.program.settings_flags import ConfigFile, with_flags
from tidegate.schemas.errors import ConfigError, ExitCode
from tidegate.schemas.instants import NS_PER_US

if TYPE_CHECKING:
    from tidegate.producer.commands.accept_gap import GapReport
    from tidegate.producer.commands.redrive import RedriveReport
    from tidegate.producer.commands.reset import ResetReport


_Report = TypeVar("_Report")

app = new_app(
    description="Publish a Spanner change stream to Kafka, in commit order per key, exactly once.",
    extra=Extra("producer", ("google.cloud.spanner_v1", "grpc")),
)


app.add_typer(schemas_app, name="schemas")


def main() -> None:
    """Entry point of the console script."""
    # gRPC's core would write lines of its own among ours; it looks at this once, when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    run_program(app)


class GraphForm(StrEnum):
    """How `lineage` prints."""

    TREE = "tree"
    MERMAID = "mermaid"
    DOT = "dot"


@app.command()
@with_flags(ProducerConfig)
def run(config: ConfigFile = None, **flags: Any) -> None:
    """Run one worker until SIGTERM or SIGINT, which drain; a second signal ends it at once."""
    settings = ProducerConfig.load(config, **flags)
    start_log_of_run(settings)
    from tidegate.producer.commands import run as command  # noqa: PLC0415 - loads gRPC, see `main`

    command.run(settings)


@app.command()
@with_flags(ProducerConfig)
def check(config: ConfigFile = None, **flags: Any) -> None:
    """Check settings, Spanner, Kafka and the registry, and change nothing."""
    settings = ProducerConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import check as command  # noqa: PLC0415 - loads gRPC, as above

    for line in command.check(settings):
        typer.echo(line)


@app.command()
@with_flags(ProducerConfig)
def redrive(
    config: ConfigFile = None,
    table: Annotated[str, typer.Option("--table", help="Only the changes of this table.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be put back.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """Put parked changes back into their topics, once their cause is removed; the fleet is stopped.

    Exit code 1 if some keys stay parked, because a change of theirs still cannot be published.
    """
    settings = ProducerConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import redrive as command  # noqa: PLC0415 - loads gRPC, as above

    with Console(stderr=True).status("connecting") as status:
        report = command.redrive(
            settings, table=table, dry_run=dry_run, progress=partial(_show, status)
        )
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        _print_report(report)
    if report.left:
        raise typer.Exit(ExitCode.FAILURE)


@app.command("accept-gap")
@with_flags(ProducerConfig)
def accept_gap(
    config: ConfigFile = None,
    token: Annotated[str, typer.Option("--token", help="Of this stream partition.")] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Of all that an expired position stops.")
    ] = False,
    accepted_by: Annotated[
        str, typer.Option("--by", help="Who accepts it, for the record; else this user.")
    ] = "",
    margin_s: Annotated[
        int,
        typer.Option(
            "--margin-s",
            min=0,
            help="Seconds after the first change that can be read now that "
            "are given up too, so that workers have time to start.",
        ),
    ] = 600,
    yes: Annotated[bool, typer.Option("--yes", help="Accept without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be lost.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """Go on behind changes that expired unread, and record the loss; the fleet is stopped.

    Exit code 1 if the question was answered with no.
    """
    settings = ProducerConfig.load(config, **flags)
    start_log(settings)
    if bool(token) == every:
        raise ConfigError(
            "give either --token or --all",
            hint="tidegate-producer status lists stopped stream partitions",
        )
    _require_answer(is_given=yes or dry_run)
    from tidegate.producer.commands import accept_gap as command  # noqa: PLC0415 - loads gRPC, as above

    with Console(stderr=True).status("connecting") as status:

        def confirm(report: GapReport) -> bool:
            return yes or _ask(status, "Accept this loss for good?", _print_gaps, report)

        report = command.accept_gap(
            settings, token=token, accepted_by=accepted_by, margin_s=margin_s, dry_run=dry_run,
            confirm=confirm, progress=partial(_show, status),
        )  # fmt: skip
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        _print_gaps(report, Console())
    if not (report.accepted or dry_run):
        raise typer.Exit(ExitCode.FAILURE)


@app.command()
@with_flags(FleetConfig)
def status(
    config: ConfigFile = None,
    slowest: Annotated[
        int, typer.Option("--slowest", min=0, help="How many stream partitions to list.")
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, of all of them.")] = False,
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
    **flags: Any,
) -> None:
    """Print how far the fleet is, as its progress topic says; needs no Spanner, changes nothing."""
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import status as command  # noqa: PLC0415 - loads gRPC, as above
    from tidegate.producer.commands.status_table import status_table  # noqa: PLC0415 - as above

    interval_s = watch or 0.0
    found = command.follow(settings, metrics=metrics or (), interval_s=interval_s)
    if as_json:
        for one in found if watch else islice(found, 1):
            sys.stdout.write(command.as_json(one) + "\n")
            sys.stdout.flush()
        return
    stderr = Console(stderr=True)
    with stderr.status("reading the progress topic"):
        first = status_table(next(found), slowest=slowest)
    if watch is None:
        Console().print(first)
        return
    with suppress(KeyboardInterrupt), Live(first, auto_refresh=False) as live:
        for one in found:
            live.update(status_table(one, slowest=slowest), refresh=True)


@app.command()
@with_flags(FleetConfig)
def lineage(
    config: ConfigFile = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """Print which stream partition came from which; needs no Spanner, changes nothing."""
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import lineage as command  # noqa: PLC0415 - loads gRPC, see `main`

    with Console(stderr=True).status("reading the progress topic"):
        graph = command.lineage(settings, generations=None if every else generations)
    now_us = time.time_ns() // NS_PER_US
    if as_json:
        sys.stdout.write(command.as_json(graph) + "\n")
    elif form is GraphForm.TREE:
        Console().print(command.as_tree(graph, now_us=now_us))
    else:
        write = command.as_dot if form is GraphForm.DOT else command.as_mermaid
        sys.stdout.write(write(graph, now_us=now_us))


@app.command()
@with_flags(FleetConfig)
def reset(
    config: ConfigFile = None,
    with_subjects: Annotated[
        bool,
        typer.Option(
            "--subjects", help="Delete the registry's subjects too, as another primary key needs."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **flags: Any,
) -> None:
    """Delete the stream's topics and groups, so that it begins again; the fleet is stopped.

    Exit code 1 if the question was answered with no.
    """
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    _require_answer(is_given=yes or dry_run)
    from tidegate.producer.commands import reset as command  # noqa: PLC0415 - loads gRPC, see `main`

    with Console(stderr=True).status("connecting") as status:

        def confirm(report: ResetReport) -> bool:
            question = "Delete all of it, with every change in it?"
            return yes or _ask(status, question, _print_reset, report)

        report = command.reset(
            settings,
            with_subjects=with_subjects,
            dry_run=dry_run,
            confirm=confirm,
            progress=partial(_show, status),
        )
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        _print_reset(report, Console())
    if not (report.removed or dry_run or report.is_empty):
        raise typer.Exit(ExitCode.FAILURE)


add_control_commands(app)
add_backfill_command(app)
add_dead_letters_command(app)
add_discover_command(app)


def _show(status: Status, what: str, done: int) -> None:
    status.update(f"{what}: {done}" if done else what)


def _require_answer(*, is_given: bool) -> None:
    """Raise ConfigError if a question can be neither skipped nor asked."""
    if not (is_given or sys.stdin.isatty()):
        raise ConfigError("there is no terminal to ask at", hint="Give --yes, or --dry-run to look")


def _ask(
    status: Status, question: str, print_report: Callable[[_Report, Console], None], report: _Report
) -> bool:
    """Show what would be done, and return the answer; the line of progress is away meanwhile."""
    status.stop()
    print_report(report, status.console)
    is_confirmed = typer.confirm(question, err=True)
    status.start()
    return is_confirmed


def _print_gaps(report: GapReport, console: Console) -> None:
    verb = "is lost" if report.accepted else "would be lost"
    table = Table("token", "slot", "from", "until", "stopped since", title=f"What {verb}")
    for one in report.partitions:
        since = one.stopped_since or "unknown"
        table.add_row(escape(one.token), str(one.slot), one.lost_from, one.lost_until, since)
    console.print(table)
    if report.accepted:
        console.print(f"Accepted by {escape(report.accepted_by)}. Start the workers now.")


def _print_reset(report: ResetReport, console: Console) -> None:
    kinds = {"topic": report.topics, "group": report.groups, "subject": report.subjects}
    lines = [f"{kind} {escape(name)}" for kind, names in kinds.items() for name in names]
    verb = "deleted" if report.removed else "would be deleted"
    console.print("\n".join(f"{line} {verb}" for line in lines) or "There is nothing to delete.")


def _print_report(report: RedriveReport) -> None:
    console = Console()
    verb = "would be put back" if report.dry_run else "put back"
    if not report.changes:
        console.print("No change can be put back." if report.left else "No change is parked.")
    for topic, changes in report.changes.items():
        console.print(f"{topic}: {changes} changes of {report.keys[topic]} keys {verb}")
    if report.left:
        stay = Table("topic", "key", "changes", "since", "reason", title="These keys stay parked")
        for one in report.left:
            since = one.first_commit_timestamp
            stay.add_row(
                one.topic,
                escape(one.key),
                str(one.changes),
                since,
                escape(f"{one.reason}: {one.error}"),
            )
        console.print(stay)
