"""`tidegate-local`: fetch the JVM parts, keep a local stack up.

Commands parse, call and map errors to exit codes: 0 done, 1 failure, 2 usage or settings, 70 a
broken invariant.  Addresses go to standard output, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tidegate.local_stack.config import load_config
from tidegate.local_stack.java import find_java
from tidegate.local_stack.jvm_parts import fetch_jvm_parts, fetched_jvm_parts
from tidegate.local_stack.stack import LocalStack
from tidegate.schemas.errors import TidegateError

__all__ = ["app", "main"]

app = typer.Typer(
    help="A real Kafka, a real schema registry and a Spanner simulator on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_errors = Console(stderr=True, highlight=False)

# In a log file one line in ten seconds shows that work goes on, without filling it.
QUIET_REPORT_S = 10.0

Port = Annotated[int | None, typer.Option(help="0 (the default) for a free one.")]


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except TidegateError as error:
        _errors.print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(error.exit_code)


@app.command()
def fetch() -> None:
    """Fetch the JVM parts into the user's cache, if they are not there yet."""
    parts = fetched_jvm_parts()
    if parts is None:
        with shown_progress("fetching the JVM parts") as report:
            parts = fetch_jvm_parts(find_java(), report=report)
    typer.echo(parts.root)


@app.command()
def up(
    data_dir: Annotated[Path | None, typer.Option(help="Where data and logs go.")] = None,
    kafka_port: Port = None,
    registry_port: Port = None,
    spanner_port: Port = None,
    control_port: Port = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulator.")] = None,
) -> None:
    """Keep broker, registry and simulator running until Ctrl-C."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _interrupt(stopping))
    config = load_config(
        data_dir=data_dir,
        kafka_port=kafka_port,
        registry_port=registry_port,
        spanner_port=spanner_port,
        control_port=control_port,
        seed=seed,
    )
    stack = LocalStack(config, report=_say)
    try:
        with stack:
            for line in environment_lines(stack):
                typer.echo(line)
            _say("up; Ctrl-C stops it")
            stopping.wait()
    except KeyboardInterrupt:
        _say("stopped")


def environment_lines(stack: LocalStack) -> list[str]:
    """Shell lines that point other programs at the stack."""
    return [
        f"export TIDEGATE_KAFKA={stack.bootstrap_servers}",
        f"export TIDEGATE_REGISTRY={stack.registry_url}",
        f"export SPANNER_EMULATOR_HOST={stack.spanner_address}",
        f"export TIDEGATE_SIMULATOR_CONTROL={stack.control_address}",
    ]


@contextlib.contextmanager
def shown_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yield what takes lines: a live line on a terminal, a printed one now and then elsewhere."""
    if _errors.is_terminal:
        with _errors.status(title) as status:
            yield lambda line: status.update(f"{title}: {line}")
        return
    told = -QUIET_REPORT_S

    def report(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= QUIET_REPORT_S:
            told = time.monotonic()
            _say(f"{title}: {line}")

    yield report
    _say(f"{title}: done")


def _say(line: str) -> None:
    _errors.print(line, style="dim", soft_wrap=True)


def _interrupt(stopping: threading.Event) -> Any:
    """The first signal stops the stack in order; the second one does not wait for it."""
    if stopping.is_set():
        os._exit(1)
    stopping.set()
    raise KeyboardInterrupt
