"""Official clients against the simulator: `python -m conformance [--only go]`.

Builds the program of each client whose toolchain is present, runs it, and prints a table check by
client. Exit code: 0 every check passed, 1 not, 2 a toolchain that was required is absent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.programs import PROGRAMS, BuildFailedError, FetchFailedError, Program, prepare
from conformance.report import ProgramReport, run_program, show
from spanner_simulator import Simulator

BUILDS = Path(__file__).resolve().parents[2] / ".conformance"
NAMES = [program.name for program in PROGRAMS]


def main(
    *,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this client; may be repeated.")
    ] = None,
    require: Annotated[
        str, typer.Option(help="Clients whose toolchain must be present, with commas between.")
    ] = "",
) -> None:
    """Let official clients of Spanner walk one list of checks against the simulator."""
    console = Console(stderr=True, highlight=False)
    required = [name for name in require.split(",") if name]
    if any(name not in NAMES for name in [*(only or ()), *required]):
        raise typer.BadParameter(f"the clients are {', '.join(NAMES)}")
    chosen = [one for one in PROGRAMS if not only or one.name in (*only, *required)]
    lacking = {one.name: what for one in chosen if (what := one.missing())}
    for name, what in lacking.items():
        console.print(f"{name} is left out: {what}", markup=False)
    if lacking.keys() & set(required):
        raise typer.Exit(2)
    BUILDS.mkdir(parents=True, exist_ok=True)
    with Simulator(seed=5) as simulator:
        reports = [_walk(one, simulator, console) for one in chosen if one.name not in lacking]
    if reports:
        show(reports, Console())
    raise typer.Exit(1 if any(one.failures for one in reports) else 0)


def _walk(program: Program, simulator: Simulator, console: Console) -> ProgramReport:
    console.print(f"building {program.name}")
    try:
        command = prepare(program, BUILDS)
    except (FetchFailedError, BuildFailedError) as failure:
        return ProgramReport(program, trouble=str(failure))
    console.print(f"running {program.name}")
    return run_program(program, command, simulator, BUILDS / f"{program.name}.log")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
