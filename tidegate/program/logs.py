"""Log lines: JSON on standard error, one object a line."""

from __future__ import annotations

import logging
import sys

import structlog


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
