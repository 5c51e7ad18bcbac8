"""What Spark gets of an error of the batch function: its class and the beginning of its text.

Spark searches the text for the interruption of a query that is being stopped, with a pattern of
Java's that needs stack for each character: a Python traceback with one of Java's in it ended the
stream's thread with StackOverflowError, and nothing of the error was seen.  The whole error is
`Batch.failure`, which the query reports.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_TEXT_MAX = 1_000

_INTERRUPTED = re.compile(
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling.*?"
    r"(java\.lang\.InterruptedException|java\.io\.InterruptedIOException"
    r"|java\.nio\.channels\.ClosedByInterruptException)",
    re.DOTALL,
)
"""What Spark looks for: the batch was interrupted, and the query has not failed."""


class BatchFailed(Exception):  # noqa: N818 - named after what happened
    """A batch has ended with an error; the text names it."""


def with_short_failures(
    batch: Callable[[DataFrame, int], None],
) -> Callable[[DataFrame, int], None]:
    """Return the function for Spark; it raises BatchFailed for any error of `batch`."""

    def run(rows: DataFrame, number: int) -> None:
        try:
            batch(rows, number)
        except Exception as error:  # noqa: BLE001 - whatever a batch, a sink or a function raises
            raise BatchFailed(_short(error)) from None

    return run


def _short(error: Exception) -> str:
    whole = "".join(traceback.format_exception(error))
    if (interrupted := _INTERRUPTED.search(whole)) is not None:
        calling = "py4j.protocol.Py4JJavaError: An error occurred while calling Java"
        return f"{calling}: {interrupted.group(1)}"
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]} …"
