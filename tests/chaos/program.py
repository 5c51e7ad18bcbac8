"""What the programs of chaos do around a run: a folder, a display, the report, the exit code."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import typer
from rich.console import Console

from tests.chaos.report import Report
from tidegate.local_stack.demo.view import RunView
from tidegate.schemas.errors import TidegateError


def run_program(run: Callable[[Path, RunView], Report], *, keep: bool, as_json: bool) -> None:
    """Run in a temporary folder and print the report; raises typer.Exit with the exit code.

    The folder stays where something is wrong, and with `keep`.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    console = Console(stderr=True, highlight=False)
    stays = True
    try:
        with RunView(console=console) as view:
            report = run(folder, view)
        if as_json:
            sys.stdout.write(json.dumps(report.as_json(), indent=2) + "\n")
        else:
            report.show(Console())
        stays = keep or bool(report.wrong)
    except TidegateError as error:
        console.print(f"chaos stopped: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    finally:
        if stays:
            console.print(f"output and logs are in {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(1 if report.wrong else 0)
