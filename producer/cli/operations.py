"""The commands of `tidegate-producer` that change a stream: flags and output.

Each command is in the module of its name, which is imported when it runs, because Google's and
Kafka's clients take a second to load.
"""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.producer.backfill.requests import CHUNK_ROWS_DEFAULT, SHARE_DEFAULT, RunState
from tidegate.producer.cli.report import AsJson, ProgressLine, print_report, require_answer
from tidegate.producer.config import FleetConfig, ProducerConfig
from tidegate.program.settings_flags import with_settings
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ControlState

if TYPE_CHECKING:
    from tidegate.producer.cli.accept_gap import GapReport
    from tidegate.producer.cli.reset import ResetReport


_By = Annotated[str, typer.Option("--by", help="Who wants it, for the record; else this user.")]
_Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Whether to wait until it has come about.")
]
_Timeout = Annotated[
    float, typer.Option("--timeout-s", min=1, help="How many seconds to wait at most.")
]


def add_operations(app: typer.Typer) -> None:
    """Add the commands to a program."""
    for fleet_command in (reset, pause, resume, drain):
        app.command()(with_settings(FleetConfig)(fleet_command))
    app.command()(with_settings(ProducerConfig)(redrive))
    app.command("accept-gap")(with_settings(ProducerConfig)(accept_gap))
    app.command()(with_settings(ProducerConfig)(backfill))


def pause(
    settings: FleetConfig,
    by: _By = "",
    wait: _Wait = True,
    timeout_s: _Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Let all workers publish what they have read, and read nothing until `resume`.

    Exit code 1 if the time-out ends the wait.
    """
    wait_s = timeout_s if wait else 0.0
    _control(settings, ControlState.PAUSED, by=by, wait_s=wait_s, as_json=as_json)


def resume(settings: FleetConfig, by: _By = "", as_json: AsJson = False) -> None:
    """Let the workers of a paused stream read on."""
    _control(settings, ControlState.RUNNING, by=by, wait_s=0.0, as_json=as_json)


def _control(
    settings: FleetConfig, state: ControlState, *, by: str, wait_s: float, as_json: bool
) -> None:
    from tidegate.producer.cli import control as command

    with ProgressLine() as progress:
        report = command.control(
            settings, state, by=by or this_user(), wait_s=wait_s, progress=progress
        )
    print_report(report, as_json=as_json, is_done=report.is_done)


def drain(
    settings: FleetConfig,
    workers: Annotated[list[str], typer.Argument(metavar="WORKER...", help="Names of workers.")],
    by: _By = "",
    wait: _Wait = True,
    timeout_s: _Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Drain workers: each publishes what it has read, releases its slots, and ends.

    Exit code 1 if the time-out ends the wait.
    """
    from tidegate.producer.cli import control as command

    wait_s = timeout_s if wait else 0.0
    with ProgressLine() as progress:
        report = command.drain(
            settings, workers, by=by or this_user(), wait_s=wait_s, progress=progress
        )
    print_report(report, as_json=as_json, is_done=report.is_done)


def backfill(
    settings: ProducerConfig,
    table: Annotated[str, typer.Argument(help="A table that the stream publishes.")],
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
    stop: Annotated[
        bool, typer.Option("--stop", help="Pause the backfill until --resume.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after --stop, or with another --share.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End the backfill; rows that were read stay.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Only print how far the backfill is.")
    ] = False,
    by: Annotated[str, typer.Option("--by", help="Who wants it, for the record.")] = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=1, help="How long to wait for the fleet.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Read a table's rows while the stream runs, in chunks, and put them among its changes.

    Exit code 1 if the fleet has not taken it up in time.
    """
    chosen = [stop, resume, cancel, show]
    _require_one_wish(
        chosen, chunk_rows=chunk_rows, share=share, where=where, data_boost=data_boost
    )
    from tidegate.producer.cli import backfill as command

    with ProgressLine() as progress:
        if any(chosen):
            states = (RunState.STOPPED, RunState.RUNNING, RunState.CANCELLED, None)
            state = states[chosen.index(True)]
            report = command.change_backfill(
                settings, table, state, share=share, by=by or this_user()
            )
        else:
            report = command.start_backfill(
                settings,
                table,
                chunk_rows=chunk_rows or CHUNK_ROWS_DEFAULT,
                share=share or SHARE_DEFAULT,
                where=where or "",
                data_boost=data_boost,
                by=by or this_user(),
                wait_s=timeout_s,
                progress=progress,
            )
    print_report(report, as_json=as_json, is_done=any(chosen) or report.is_taken_up)


def _require_one_wish(
    chosen: list[bool],
    *,
    chunk_rows: int | None,
    share: int | None,
    where: str | None,
    data_boost: bool,
) -> None:
    """Raise ConfigError for flags of `backfill` that exclude each other.

    `chosen` are --stop, --resume, --cancel and --show.
    """
    is_change = any(chosen)
    if sum(chosen) > 1:
        raise ConfigError(
            "--stop, --resume, --cancel and --show exclude each other", hint="Give one of them"
        )
    if where is not None and not where.strip():
        raise ConfigError("--where: the condition is empty", hint="Leave it out to read all rows")
    if where is not None and is_change:
        raise ConfigError(
            "--where belongs to a new run", hint="A run keeps the condition that it began with"
        )
    if data_boost and (where is not None or is_change):
        raise ConfigError(
            "--data-boost belongs to a new run without --where",
            hint="Data Boost reads ranges of keys; a run keeps the way it began with",
        )
    if chunk_rows is not None and is_change:
        raise ConfigError(
            "--chunk-rows belongs to a new run", hint="A run keeps the size that it began with"
        )
    is_resumed = chosen[1]
    if share is not None and is_change and not is_resumed:
        raise ConfigError(
            "--share belongs to a new run or to --resume", hint="Leave it out, or give --resume"
        )


def redrive(
    settings: ProducerConfig,
    table: Annotated[str, typer.Option("--table", help="Only the changes of this table.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be put back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put parked changes back into their topics, once their cause is removed; stop the fleet first.

    Exit code 1 if some keys stay parked, because a change of theirs still cannot be published.
    """
    from tidegate.producer.cli import redrive as command

    with ProgressLine() as progress:
        report = command.redrive(settings, table=table, dry_run=dry_run, progress=progress)
    print_report(report, as_json=as_json, is_done=not report.left)


def accept_gap(
    settings: ProducerConfig,
    token: Annotated[
        str,
        typer.Option(
            "--token", help="The stream partition to continue; `status` lists stopped ones."
        ),
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Continue all that stopped at expired changes.")
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
    as_json: AsJson = False,
) -> None:
    """Continue past changes that expired unread, and record the loss; stop the fleet first.

    Exit code 1 if the question was answered with no.
    """
    if bool(token) == every:
        raise ConfigError(
            "give either --token or --all",
            hint="tidegate-producer status lists stopped stream partitions",
        )
    require_answer(is_given=yes or dry_run)
    from tidegate.producer.cli import accept_gap as command

    with ProgressLine() as progress:

        def confirm(report: GapReport) -> bool:
            return yes or progress.ask("Accept this loss for good?", report)

        report = command.accept_gap(
            settings,
            token=token,
            accepted_by=accepted_by or this_user(),
            margin_s=margin_s,
            dry_run=dry_run,
            confirm=confirm,
            progress=progress,
        )
    print_report(report, as_json=as_json, is_done=report.accepted or dry_run)


def reset(
    settings: FleetConfig,
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
    as_json: AsJson = False,
) -> None:
    """Delete the stream's topics and groups, so that it begins again; stop the fleet first.

    Exit code 1 if the question was answered with no.
    """
    require_answer(is_given=yes or dry_run)
    from tidegate.producer.cli import reset as command

    with ProgressLine() as progress:

        def confirm(report: ResetReport) -> bool:
            return yes or progress.ask("Delete all of it, with every change in it?", report)

        report = command.reset(
            settings,
            with_subjects=with_subjects,
            dry_run=dry_run,
            confirm=confirm,
            progress=progress,
        )
    print_report(report, as_json=as_json, is_done=report.removed or dry_run or report.is_empty)


def this_user() -> str:
    """Return the user and the host, for records that name a person."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
