"""Finds the cause that ended a query, which the text of Spark or a file system seldom names."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from traceback import walk_tb
from typing import TYPE_CHECKING

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.json_files import JsonStorage
from tidegate.spark_consumer.core.runs import is_late_write
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    CheckpointConflict,
    DataTopicChanged,
    ReportFailed,
    WriterReplaced,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_CAUSE_MAX = 300
_SINKS = "tidegate.spark_consumer.sinks"
_TABLES = (f"{_SINKS}.append", f"{_SINKS}.delta.", f"{_SINKS}.merge.")
"""The modules that read and write tables of Delta."""
_CONNECTION = (ConnectionError, TimeoutError)
"""Failures of the JVM, not of storage."""
_DELTA_RS = ("_internal", "deltalake._internal", "deltalake.exceptions")
_SYSTEM_ERROR = re.compile(
    r"\bOs \{ code|\(os error \d+\)|\bGeneric (?!DeltaTable\b)\w+ error\b|local directory"
)
"""The texts of Rust's standard library and of its client of object stores, in those of delta-rs.

Each error of delta-rs itself is a "Generic DeltaTable error"."""


_NAMED = (ChangesExpired, CheckpointConflict, DataTopicChanged, ReportFailed, WriterReplaced)
_NO_NEWEST_OFFSETS = (
    'Cannot invoke "scala.collection.IterableOps.map(scala.Function1)" because the return value of '
    '"scala.Option.get()" is null'
)


def name_failure(
    failure: BaseException, *, gate: JsonStorage, require_kept: Callable[[], None]
) -> BaseException:
    """Return the error that explains a failure, with the failure as its cause.

    It is the failure itself if it cannot be explained.  `require_kept` raises ChangesExpired if
    Kafka lacks records.  A failed read or write of a folder's files becomes UnreachableError.
    Blocks until storage and Kafka answer.
    """
    checks: tuple[Callable[[], None], ...] = (
        lambda: _require_writer(gate, failure),
        lambda: require_no_conflict(gate, failure),
        require_kept,
        lambda: _require_report(failure),
    )
    for check in checks:
        try:
            check()
        except _NAMED as named:
            named.__cause__ = failure
            return named
        except Exception:  # noqa: BLE001, S112 - what does not answer must not hide the failure
            continue
    try:
        require_storage(failure)
    except UnreachableError as named_error:
        return named_error
    return failure


def require_storage(failure: BaseException) -> None:
    """Raise UnreachableError if a failure is a read or write of a table that storage rejected."""
    module, text = _own_module(failure), str(failure)
    is_refused = isinstance(failure, OSError) and not isinstance(failure, _CONNECTION)
    is_of_delta_rs = type(failure).__module__ in _DELTA_RS
    if not module.startswith(_TABLES):
        return
    if is_refused or (is_of_delta_rs and _SYSTEM_ERROR.search(text)):
        message = "the storage rejected a read or write of the output"
        hint = "Check the folder, its permissions and the free space of its disk, and start again"
        cause = " ".join(text.split())[:_CAUSE_MAX]
        raise UnreachableError(message, hint=hint, cause=cause) from failure


def _own_module(failure: BaseException) -> str:
    """Return the innermost module of Tidegate that a failure was raised in or passed through."""
    names = [
        str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(failure.__traceback__)
    ]
    return next((name for name in reversed(names) if name.startswith("tidegate.")), "")


def find_successor(gate: JsonStorage) -> WriterReplaced | None:
    """Return the error of a run that was replaced; None if it was not, or if that is unknown.

    Blocks until storage answers.
    """
    try:
        gate.require_writer()
    except WriterReplaced as replaced:
        return replaced
    except Exception:  # noqa: BLE001 - without storage nothing is known of a successor
        return None
    return None


def require_no_conflict(gate: JsonStorage, failure: BaseException) -> None:
    """Raise CheckpointConflict if Spark has found a file of another run, and this run may write.

    Raises WriterReplaced if another run has taken the checkpoint.
    """
    if not is_late_write(str(failure)):
        return
    _require_writer(gate, failure)
    raise CheckpointConflict(
        "another run has written to Spark's part of this checkpoint",
        hint=(
            "Nothing is lost: start the run again."
            " If it comes again, look for another query that uses the checkpoint"
        ),
        gate=gate.root,
    ) from failure


def _require_report(failure: BaseException) -> None:
    """Raise ReportFailed if Spark's Kafka source has failed at its figures of a repeated batch.

    Spark 4.1 (SPARK-55271): a query that begins with a batch of an earlier run has not asked for
    the newest offsets yet, and compares with them once the batch is committed.
    """
    if _NO_NEWEST_OFFSETS in str(failure):
        raise ReportFailed(
            "Spark has finished a batch that it repeated, and then failed at its figures",
            hint="Nothing is lost: start the run again",
        ) from failure


def _require_writer(gate: JsonStorage, failure: BaseException) -> None:
    """Raise WriterReplaced if that is the cause of a failure.

    A run that was replaced while it was paused may continue in the middle of a sink's commit or of
    a write to Spark's own log; the error there has another name.
    """
    replaced = find_successor(gate)
    if replaced is not None:
        raise replaced from failure


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
    """Return the function for Spark; it raises BatchFailed for any error of `batch`.

    Spark gets the class of the error and the beginning of its text.  It searches the text for the
    interruption of a query that is being stopped, with a pattern of Java's that needs stack for
    each character: a Python traceback with one of Java's in it ended the stream's thread with
    StackOverflowError, and nothing of the error was seen.  The whole error is `Batch.failure`,
    which the query reports.
    """

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
