"""The demo as a command: its stack and folder, its output, and whether it succeeded."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import Scenario
from tidegate.local_stack.demo.bank_run import BackfillRun, BankRun
from tidegate.local_stack.demo.datastream import DatastreamRun
from tidegate.local_stack.demo.report import DemoReport
from tidegate.local_stack.demo.run import DemoOptions, DemoRun
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.parts.stack import LocalStack

_RUNS: dict[Scenario, type[DemoRun]] = {
    Scenario.BANK: BankRun,
    Scenario.BACKFILL: BackfillRun,
    Scenario.DATASTREAM: DatastreamRun,
}

_PAGE = "docs/start/your-own.md"


def run_demo(options: DemoOptions, *, folder: Path, view: RunView) -> DemoReport:
    """Run a scenario below `folder` and return its report, right or wrong.

    Raises PartFailedError when a part fails or a deadline passes; stops everything in any case.
    """
    kind = _RUNS[options.scenario]
    with ExitStack() as cleanup:
        view.stage(kind.starting)
        config = load_config(data_dir=folder / "stack", seed=options.seed)
        stack = cleanup.enter_context(
            LocalStack(
                config, report=view.detail, with_simulator=kind.has_simulator, is_patient=True
            )
        )
        run = kind(options=options, stack=stack, folder=folder, view=view)
        cleanup.callback(run.stop)
        return run.run()


def prove(options: DemoOptions, *, console: Console, report: Path | None, keep: bool) -> bool:
    """Run the demo and print its report; return whether every figure is right.

    Removes the run's folder, unless `keep` or the run failed: its logs then show the cause.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    leave = True
    try:
        with RunView(console=console) as view:
            figures = run_demo(options, folder=folder, view=view)
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(figures.to_json())
        right = _print(figures, options=options, console=console)
        if right:
            _print_next(console)
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


def _print(figures: DemoReport, *, options: DemoOptions, console: Console) -> bool:
    """Print both tables to standard output, and the wrong figures to standard error."""
    wrong = figures.wrong_figures(options.asked)
    Console().print(*figures.tables(options.asked), sep="\n")
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


def _print_next(console: Console) -> None:
    up = "./dev up" if Path("dev").is_file() and Path(_PAGE).is_file() else "tidegate-local up"
    for line in (
        f"next: {up} keeps these parts running, and prints how to write a row yourself",
        f"then: {_PAGE} leads to your own Spanner, Kafka and Spark",
    ):
        console.print(line, soft_wrap=True, markup=False)
