"""The start and the end of every program's command line: `--version`, extras, exit codes.

Exit codes are those of `schemas.errors.ExitCode`.  Standard output is for a program's answers, or
for the log of `run`; errors go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tidegate.program.extras import Extra
from tidegate.schemas.errors import InvariantViolation, TidegateError
from tidegate.version import __version__


def new_app(*, description: str, extra: Extra | None = None) -> typer.Typer:
    """Return an app without commands, but with `--version`.

    With `extra`, every command first raises ConfigError if that extra is not installed.
    """
    app = typer.Typer(
        help=description,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def before_each_command(
        *,
        version: Annotated[  # noqa: ARG001 - handled by its callback, before any command
            bool,
            typer.Option(
                "--version",
                callback=_print_version,
                is_eager=True,
                help="Print the version and exit.",
            ),
        ] = False,
    ) -> None:
        if extra is not None:
            extra.require()

    return app


def run_program(app: Callable[[], object]) -> None:
    """Run a command line to its end; a known error becomes one line and its exit code."""
    try:
        app()
    except TidegateError as error:
        kind = "broken invariant" if isinstance(error, InvariantViolation) else "error"
        # As text, because a hint may name an extra, and rich would take its brackets for markup.
        line = Text.assemble((f"{kind}:", "bold red"), f" {error}")
        Console(stderr=True, highlight=False).print(line, soft_wrap=True)
        sys.exit(error.exit_code)


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - the signature is Typer's
    if is_asked:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit
