"""What every program does alike: tell an error in one line, end with its code, log JSON lines.

Exit codes: 0 done, 1 failure, 2 usage, settings or something unreachable, 70 a broken invariant.
Standard output belongs to a program's answers; errors and logs go to standard error.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import structlog
from rich.console import Console
from rich.text import Text

from tidegate.schemas.errors import InvariantViolation, TidegateError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["log_to_stderr", "run_program"]


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


def log_to_stderr(level: str) -> None:
    """Write log lines of a level (`debug`, `info`, `warning`, `error`) and above, as JSON."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
