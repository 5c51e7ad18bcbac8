"""`tidegate-local`: fetch the JVM parts, run the demo, keep a local stack up, show its tables.

The commands parse, call and map errors to exit codes (`schemas.errors.ExitCode`).  Addresses go to
standard output, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.local_stack.config import LocalStackConfig
from tidegate.local_stack.demo.bank import Dialect, FilesOf, KeyRanges, Scenario
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts, fetched_jvm_parts
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
from tidegate.program.settings_flags import with_flags
from tidegate.schemas.errors import ConfigError, ExitCode

app = new_app(
    description="A real Kafka, a real schema registry and a Spanner simulator on this machine.",
    extra=Extra(
        "local",
        ("pyspark", "delta", "deltalake", "pandas", "pyarrow", "psutil", "spanner_simulator"),
    ),
)

_errors = Console(stderr=True, highlight=False)

# In a log file, one line in ten seconds shows progress without filling the file.
QUIET_REPORT_S = 10.0

SHOW_DEADLINE_S = 60.0


def main() -> None:
    """Entry point of the console script."""
    run_program(app)


@app.command()
def fetch() -> None:
    """Download Kafka, the schema registry and Spark's jars into this user's cache.

    Parts that are there stay. Classes that Java loads are recorded, so that it starts faster.
    """
    # These libraries take a second to load, and other commands do not need them.
    from tidegate.local_stack.parts.class_recording import (  # noqa: PLC0415 - heavy imports, for this command only
        are_class_archives_made,
        make_class_archives,
    )

    java = find_java()
    parts = fetched_jvm_parts()
    if parts is None:
        with shown_progress("fetching the JVM parts") as report:
            parts = fetch_jvm_parts(java, report=report)
    if not are_class_archives_made(java, parts):
        with shown_progress("recording the classes that Java loads (a minute or two)") as report:
            faults = make_class_archives(java, parts, report=report)
        for fault in faults:
            _say(f"will start slower, not recorded: {fault}")
    typer.echo(f"JVM parts: {parts.root}")


@app.command()
@with_flags(LocalStackConfig)
def up(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Remove the data of the last run first.")
    ] = False,
    **flags: Any,
) -> None:
    """Keep a stack with a sample bank, two workers and the consumer running until Ctrl-C.

    Databases, topics and tables are kept in the data folder; the next `up` continues with them.
    """
    # These libraries take seconds to load, and other commands do not need them.
    from tidegate.local_stack.commands.up import UpFolder, keep_up, up_command  # noqa: PLC0415 - heavy imports, for this command only
    from tidegate.local_stack.demo.view import RunView  # noqa: PLC0415 - heavy imports, for this command only

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _interrupt(stopping))
    config = LocalStackConfig.load(**flags)
    try:
        with RunView(console=_errors) as view:
            keep_up(config, view=view, show=typer.echo, stopping=stopping, fresh=fresh)
    except KeyboardInterrupt:
        folder = UpFolder(config.data_dir)
        if folder.is_created:
            _say(
                f"stopped; the data is kept in {folder.path}: "
                f"`{up_command(config.data_dir)}` continues with it, with --fresh it starts from "
                "nothing"
            )
        else:
            _say("stopped before the sample bank was ready; the next start creates it again")


@app.command()
def demo(
    scenario: Annotated[
        Scenario,
        typer.Option(
            help=(
                "bank: transfers, under splits, merges and kills. backfill: the bank has rows "
                "before its stream begins, and workers are killed while these are read. "
                "datastream: files as Google Datastream writes them, late, twice and out of "
                "order, in place of Spanner."
            )
        ),
    ] = Scenario.BANK,
    accounts: Annotated[int, typer.Option(min=2, help="Accounts of the bank.")] = 200,
    transfers: Annotated[int, typer.Option(min=10, help="Transfers to make.")] = 2_000,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Transfers before the stream: 40,000 with --scenario backfill, 2,000 with "
            "datastream.",
            show_default=False,
        ),
    ] = None,
    files_of: Annotated[
        FilesOf | None,
        typer.Option(
            help="The database of --scenario datastream; mysql if not set.", show_default=False
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Producer workers.")] = 2,
    splits: Annotated[
        int, typer.Option(min=0, help="Splits of stream partitions in the simulator.")
    ] = 6,
    merges: Annotated[
        int, typer.Option(min=0, help="Merges of stream partitions in the simulator.")
    ] = 4,
    kill_workers: Annotated[int, typer.Option(min=0, help="Workers to kill with SIGKILL.")] = 1,
    kill_consumer: Annotated[
        int, typer.Option(min=0, help="Kills of the consumer with SIGKILL.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Transfers per second at most; 0: no limit; unset: 40, more for many transfers.",
        ),
    ] = None,
    dialect: Annotated[
        Dialect, typer.Option(help="The dialect of the bank's database.")
    ] = Dialect.GOOGLESQL,
    key_ranges: Annotated[
        KeyRanges,
        typer.Option(help="Whether a stream partition has the same keys all its life."),
    ] = KeyRanges.IMMUTABLE,
    report: Annotated[
        Path | None, typer.Option(help="Write all figures to this file, as JSON.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep output and logs, and print their folder.")
    ] = False,
) -> None:
    """Run a bank's changes through all parts, kill programs meanwhile, and check the result.

    Exit code 0: every figure is right; 1: a figure is wrong, or the run failed.
    """
    if files_of is not None and scenario is not Scenario.DATASTREAM:
        raise ConfigError(
            f"--files-of {files_of} has no meaning with --scenario {scenario}",
            hint="Add --scenario datastream, or leave --files-of out",
        )
    if rows is not None and scenario is Scenario.BANK:
        raise ConfigError(
            f"--rows {rows} has no meaning with --scenario {scenario}",
            hint="Add --scenario backfill or datastream, or leave it out",
        )
    # These libraries take seconds to load, and other commands do not need them.
    from tidegate.local_stack.commands.demo import prove  # noqa: PLC0415 - heavy imports, for this command only
    from tidegate.local_stack.demo.run import DemoOptions  # noqa: PLC0415 - heavy imports, for this command only

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _interrupt(stopping))
    options = DemoOptions(
        accounts=accounts,
        transfers=transfers,
        workers=workers,
        splits=splits,
        merges=merges,
        kill_workers=kill_workers,
        kill_consumer=kill_consumer,
        seed=seed,
        rate_max=rate,
        dialect=dialect,
        key_ranges=key_ranges,
        scenario=scenario,
        rows=rows,
        files_of=files_of or FilesOf.MYSQL,
    )
    try:
        right = prove(options, console=_errors, report=report, keep=keep)
    except KeyboardInterrupt:
        _say("stopped")
        right = False
    raise typer.Exit(ExitCode.DONE if right else ExitCode.FAILURE)


@app.command()
def show(
    table: Annotated[
        str, typer.Argument(help="A table of the output; of `up`: accounts or ledger.")
    ],
    data_dir: Annotated[
        Path | None, typer.Option(help="The data folder of `up`; unset: .tidegate.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Another output folder than that of `up`.")
    ] = None,
    changelog: Annotated[
        bool,
        typer.Option(
            "--changelog", help="Print the table's changes in commit order, not its rows."
        ),
    ] = False,
    key: Annotated[
        str, typer.Option(help="Print only rows with this key; wait up to 60 s for one.")
    ] = "",
    rows: Annotated[
        int, typer.Option(min=1, help="Print at most this many rows, the last ones.")
    ] = 20,
) -> None:
    """Print the rows that a table of the output has now (its mirror in Delta), or its changes.

    It reads files only: `up` may run or be stopped.
    """
    from tidegate.local_stack.commands.show import (  # noqa: PLC0415 - heavy imports, for this command only
        changelog_rows,
        mirror_rows,
        rows_table,
        wait_for_key,
    )
    from tidegate.local_stack.commands.up import UpFolder  # noqa: PLC0415 - heavy imports, for this command only

    folder = output or UpFolder(LocalStackConfig.load(data_dir=data_dir).data_dir).output
    read = functools.partial(changelog_rows if changelog else mirror_rows, folder, table)
    table_rows = wait_for_key(read, key, deadline_s=SHOW_DEADLINE_S, say=_say) if key else read()
    title = f"changes of {table}" if changelog else table
    Console().print(rows_table(table_rows, title=title, rows_max=rows))


@contextlib.contextmanager
def shown_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line: live on a terminal, else at most every ten seconds."""
    if _errors.is_terminal:
        with _errors.status(title) as status:
            yield lambda line: status.update(escape(f"{title}: {line}"))
        return
    printed_at = -QUIET_REPORT_S

    def report(line: str) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= QUIET_REPORT_S:
            printed_at = time.monotonic()
            _say(f"{title}: {line}")

    yield report
    _say(f"{title}: done")


def _say(line: str) -> None:
    _errors.print(line, style="dim", soft_wrap=True, markup=False)


def _interrupt(stopping: threading.Event) -> Any:
    """Stop the stack in order at the first signal, end at once at the second."""
    if stopping.is_set():
        os._exit(ExitCode.FAILURE)
    stopping.set()
    raise KeyboardInterrupt
