"""Drops py4j's log records about its connections to a JVM that has been stopped.

They are long, one for each connection; what a program has to know is raised as well.
"""

from __future__ import annotations

import logging
from pathlib import Path


def silence_py4j() -> None:
    """Drop py4j's records, also those that it writes to the root logger (0.10.9)."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_from_another)


def _is_from_another(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
