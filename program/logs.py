"""Log lines, one event a line: for people, as JSON, or as JSON for Cloud Logging.

A command that prints an answer logs to standard error, `run` to standard output: collectors of
containers, such as Google's, treat a line on standard error as an error.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, Literal, Protocol, TextIO

import structlog

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["", "console", "json", "gcp"]


class LogSettings(Protocol):
    """The settings of the log."""

    @property
    def log_level(self) -> LogLevel:
        """The lowest severity that is written."""

    @property
    def log_format(self) -> LogFormat:
        """The format of a line; empty: chosen by the kind of the stream."""


def start_log(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Start writing log lines, to standard error unless a stream is given."""
    target = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_FORMS[_form(settings, target)](target),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(target),
    )


def start_log_of_run(settings: LogSettings) -> None:
    """Start writing log lines to standard output, also for an error that ends a process or thread.

    In the format for people such an error stays a traceback on standard error.
    """
    start_log(settings, sys.stdout)
    if _form(settings, sys.stdout) != "console":
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_of_thread


def _form(settings: LogSettings, stream: TextIO) -> LogFormat:
    return settings.log_format or ("console" if stream.isatty() else "json")


def _for_people(stream: TextIO) -> list[Any]:
    has_colors = stream.isatty() and "NO_COLOR" not in os.environ
    # The other formatters print the values of local variables, and with them secrets.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=has_colors, exception_formatter=plain)]


def _as_json(_: TextIO) -> list[Any]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _for_cloud_logging(stream: TextIO) -> list[Any]:
    formatted, rendered = _as_json(stream)
    return [formatted, _name_for_cloud_logging, rendered]


_FORMS = {"console": _for_people, "json": _as_json, "gcp": _for_cloud_logging}


def _name_for_cloud_logging(
    _: object, __: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Rename fields for Cloud Logging; Error Reporting groups errors by `stack_trace`.

    The names are those of Google's pages "Structured logging" and "Format a log entry to report
    error events".
    """
    line["severity"] = line.pop("level").upper()
    line["message"] = line.pop("event")
    line["time"] = line.pop("timestamp")
    if "exception" in line:
        line["stack_trace"] = line.pop("exception")
    return line


def _log_uncaught(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, Exception):
        sys.__excepthook__(kind, error, traceback)
        return
    structlog.get_logger().critical("unexpected error", exc_info=(kind, error, traceback))


def _log_uncaught_of_thread(caught: threading.ExceptHookArgs) -> None:
    # None: the thread's error was collected at the end of the process.
    if caught.exc_value is not None:
        _log_uncaught(caught.exc_type, caught.exc_value, caught.exc_traceback)
