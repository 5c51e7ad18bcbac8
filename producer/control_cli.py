"""`tidegate-producer pause`, `resume` and `drain`: flags, and what they print."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from tidegate.producer.fleet_config import FleetConfig
from tidegate.program.logs import start_log
from tidegate.program.settings_flags import ConfigFile, with_flags
from tidegate.schemas.errors import ExitCode
from tidegate.schemas.progress import ControlState

if TYPE_CHECKING:
    from tidegate.producer.commands.control import ControlReport, DrainReport


_By = Annotated[str, typer.Option("--by", help="Who wants it, for the record; else this user.")]
_Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Whether to wait until it has come about.")
]
_Timeout = Annotated[
    float, typer.Option("--timeout-s", min=1, help="How many seconds to wait at most.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_control_commands(app: typer.Typer) -> None:
    """Add the commands to a program."""
    for command in (pause, resume, drain):
        app.command()(with_flags(FleetConfig)(command))


def pause(
    config: ConfigFile = None,
    by: _By = "",
    wait: _Wait = True,
    timeout_s: _Timeout = 120.0,
    as_json: _Json = False,
    **flags: Any,
) -> None:
    """Let all workers publish what they have read, and read no more until `resume`.

    Exit code 1 if the time-out ends the wait.
    """
    _control(
        ControlState.PAUSED, config, flags,
        by=by, wait_s=timeout_s if wait else 0.0, as_json=as_json,
    )  # fmt: skip


def resume(
    config: ConfigFile = None,
    by: _By = "",
    as_json: _Json = False,
    **flags: Any,
) -> None:
    """Let the workers of a paused stream read on."""
    _control(ControlState.RUNNING, config, flags, by=by, wait_s=0.0, as_json=as_json)


def drain(
    workers: Annotated[list[str], typer.Argument(metavar="WORKER...", help="Names of workers.")],
    config: ConfigFile = None,
    by: _By = "",
    wait: _Wait = True,
    timeout_s: _Timeout = 120.0,
    as_json: _Json = False,
    **flags: Any,
) -> None:
    """Take workers away: each publishes what it has read, leaves its slots to others, and ends.

    Exit code 1 if the time-out ends the wait.
    """
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import control as command  # noqa: PLC0415 - loads Kafka's client

    with Console(stderr=True).status("connecting") as status:
        report = command.drain(
            settings, workers,
            by=by, wait_s=timeout_s if wait else 0.0, progress=partial(_show, status),
        )  # fmt: skip
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        typer.echo(_drained(report))
    if not report.is_done:
        raise typer.Exit(ExitCode.FAILURE)


def _control(
    state: ControlState,
    config: ConfigFile,
    flags: dict[str, Any],
    *,
    by: str,
    wait_s: float,
    as_json: bool,
) -> None:
    settings = FleetConfig.load(config, **flags)
    start_log(settings)
    from tidegate.producer.commands import control as command  # noqa: PLC0415 - loads Kafka's client

    with Console(stderr=True).status("connecting") as status:
        report = command.control(
            settings, state, by=by, wait_s=wait_s, progress=partial(_show, status)
        )
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        typer.echo(_controlled(report))
    if not report.is_done:
        raise typer.Exit(ExitCode.FAILURE)


def _controlled(report: ControlReport) -> str:
    if not report.is_done:
        slots = ", ".join(map(str, report.draining))
        return f"{report.state.value}: still read are the slots {slots}"
    return report.state.value if report.written else f"{report.state.value}, as before"


def _drained(report: DrainReport) -> str:
    if not report.is_done:
        return (
            f"still in the group: {', '.join(report.remaining)}. A worker that was just starting "
            "does not obey: run it again"
        )
    verb = "has left" if report.waited else "is to leave"
    return "\n".join(f"{one} {verb}" for one in report.workers)


def _show(status: Status, what: str, done: int) -> None:
    status.update(f"{what}: {done}" if done else what)
