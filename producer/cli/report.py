"""The output of commands: one answer on standard output, and their progress on standard error."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Annotated, Self, TypeAlias

import typer
from rich.console import Console, RenderableType

from tidegate.schemas.errors import ConfigError, ExitCode

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllAsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, of all of them.")]
Progress: TypeAlias = Callable[[str, int], None]
"""Called with the present step and the number of completed items; 0 if they cannot be counted."""


def no_progress(_step: str, _done: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Report(ABC):
    """The answer of a command."""

    def as_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @abstractmethod
    def shown(self) -> RenderableType:
        """Return the report for people."""


def print_report(report: Report, *, as_json: bool, is_done: bool = True) -> None:
    """Print a report; end with exit code 1 unless the request was fulfilled."""
    print_answer(report.as_json, report.shown, as_json=as_json)
    if not is_done:
        raise typer.Exit(ExitCode.FAILURE)


def print_answer(
    json_text: Callable[[], str], shown: Callable[[], RenderableType], *, as_json: bool
) -> None:
    """Print an answer as JSON or for people: text unchanged, everything else by rich."""
    if as_json:
        print_json(json_text())
        return
    answer = shown()
    if isinstance(answer, str):
        typer.echo(answer)
    else:
        Console().print(answer)


def print_json(text: str) -> None:
    """Print a line of JSON at once: a program may read each line when it comes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class ProgressLine:
    """A line on standard error that shows what a command does, while the context lasts."""

    def __init__(self, text: str = "connecting") -> None:
        """Start with a text."""
        self._status = Console(stderr=True).status(text)

    def __enter__(self) -> Self:
        """Show the line."""
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the line."""
        self._status.stop()

    def __call__(self, step: str, done: int) -> None:
        """Show another text; a `Progress`."""
        self._status.update(f"{step}: {done}" if done else step)

    def ask(self, question: str, report: Report) -> bool:
        """Show what would be done, and return the answer; the line is hidden meanwhile."""
        self._status.stop()
        self._status.console.print(report.shown())
        is_confirmed = typer.confirm(question, err=True)
        self._status.start()
        return is_confirmed


def require_answer(*, is_given: bool) -> None:
    """Raise ConfigError if a question can be neither skipped nor asked."""
    if not (is_given or sys.stdin.isatty()):
        raise ConfigError("there is no terminal to ask at", hint="Give --yes, or --dry-run to look")
