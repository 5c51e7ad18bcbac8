"""Official clients against the simulator: `python -m conformance [--only go]`.

Builds the program of each client whose toolchain is present, runs it, and prints a table check by
client.  Exit code: 0 every check passed, 1 not, 2 a toolchain that was required is absent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.programs import (
    PROGRAMS,
    BuildFailedError,
    FetchFailedError,
    Program,
    prepare,
)
from conformance.report import ProgramReport, run_program, show
from conformance.servers import Server, ServerFailedError, simulator

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
    for name in [*(only or ()), *required]:
        if name not in NAMES:
            raise typer.BadParameter(f"the clients are {', '.join(NAMES)}")
    chosen = [one for one in PROGRAMS if not only or one.name in (*only, *required)]
    lacking = {one.name: one.missing() for one in chosen}
    for name, what in lacking.items():
        if what:
            console.print(f"{name} is left out: {what}", markup=False)
    if any(lacking.get(name) for name in required):
        raise typer.Exit(2)
    BUILDS.mkdir(parents=True, exist_ok=True)
    reports: list[ProgramReport] = []
    try:
        with simulator() as server:
            reports += [_walk(one, server, console) for one in chosen if not lacking[one.name]]
    except ServerFailedError as failure:
        console.print(str(failure), markup=False)
        raise typer.Exit(1) from None
    if reports:
        show(reports, Console())
    raise typer.Exit(1 if any(one.failures for one in reports) else 0)


def _walk(program: Program, server: Server, console: Console) -> ProgramReport:
    console.print(f"building {program.name}")
    try:
        command = prepare(program, BUILDS)
    except (FetchFailedError, BuildFailedError) as failure:
        return ProgramReport(program, trouble=str(failure))
    console.print(f"running {program.name}")
    return run_program(program, command, server, BUILDS / f"{program.name}.log")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
