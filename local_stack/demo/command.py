"""The demo as a command: its folder, its output, and whether it succeeded."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from tidegate.local_stack.demo.backfill_run import BackfillRun
from tidegate.local_stack.demo.bank import Scenario
from tidegate.local_stack.demo.files.report import FilesReport
from tidegate.local_stack.demo.files.run import files_asked, run_files_demo
from tidegate.local_stack.demo.report import Report, latency_table, proof_table
from tidegate.local_stack.demo.run import DemoOptions, run_demo
from tidegate.local_stack.demo.view import RunView

_KINDS = {Scenario.BACKFILL: BackfillRun}


def prove(options: DemoOptions, *, console: Console, report: Path | None, keep: bool) -> bool:
    """Run the demo and print what it proved; return whether every figure is right.

    Removes the run's folder, unless `keep` or the run failed: its logs then show the cause.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    leave = True
    try:
        with RunView(console=console) as view:
            figures = _run(options, folder=folder, view=view)
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(figures.to_json())
        right = _print(figures, options=options, console=console)
        leave = keep or not right
    except KeyboardInterrupt:
        leave = keep
        raise
    finally:
        if leave:
            console.print(f"output and logs are in {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return right


def _run(options: DemoOptions, *, folder: Path, view: RunView) -> Report | FilesReport:
    if options.scenario is Scenario.DATASTREAM:
        return run_files_demo(options, folder=folder, view=view)
    return run_demo(options, folder=folder, view=view, kind=_KINDS.get(options.scenario))


def _print(figures: Report | FilesReport, *, options: DemoOptions, console: Console) -> bool:
    """Print both tables to standard output, and the wrong figures to standard error."""
    if isinstance(figures, Report):
        wrong = figures.wrong_figures(options.asked)
        tables = [proof_table(figures, options.asked), latency_table(figures, options.asked)]
    else:
        wrong = figures.wrong_figures(files_asked(options))
        tables = figures.tables(files_asked(options))
    Console().print(*tables, sep="\n")
    for figure in wrong:
        console.print(
            f"[bold red]wrong:[/] {figure.name} is {figure.found}, it must be {figure.expected}",
            soft_wrap=True,
        )
    for example in figures.examples if wrong else ():
        console.print(f"  {example}", soft_wrap=True, markup=False)
    Console().print(
        f"{'proved' if not wrong else 'NOT proved'} in {figures.seconds:.0f} s, seed {figures.seed}"
    )
    return not wrong
