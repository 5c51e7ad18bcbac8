"""Names what ended a query: Spark's text, or that of a file system, seldom says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.spark_consumer.core.late_writes import is_late_write
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    CheckpointConflict,
    DataTopicChanged,
    WriterReplaced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["find_successor", "name_failure", "require_no_conflict"]


class GateFolder(Protocol):
    """What is asked of the gate's folder."""

    @property
    def root(self) -> str:
        """Its address."""
        ...

    def require_writer(self) -> None:
        """Raise WriterReplaced if another run has taken it."""
        ...


def name_failure(
    failure: BaseException, *, gate: GateFolder, require_kept: Callable[[], None]
) -> BaseException:
    """Return the error that says what a failure comes from, with the failure as its cause.

    It is the failure itself where nothing is known of it.  `require_kept` raises what Kafka lacks.
    Blocks for as long as storage and Kafka take to answer.
    """
    checks: tuple[Callable[[], None], ...] = (
        lambda: _require_writer(gate, failure),
        lambda: require_no_conflict(gate, failure),
        require_kept,
    )
    for check in checks:
        try:
            check()
        except (ChangesExpired, CheckpointConflict, DataTopicChanged, WriterReplaced) as found:
            found.__cause__ = failure
            return found
        except Exception:  # noqa: BLE001, S112 - what does not answer must not hide the failure
            continue
    return failure


def find_successor(gate: GateFolder) -> WriterReplaced | None:
    """Return the error of a run that another one has replaced; None if it is the last, or unknown.

    Blocks for as long as storage takes to answer.
    """
    try:
        gate.require_writer()
    except WriterReplaced as replaced:
        return replaced
    except Exception:  # noqa: BLE001 - without storage nothing is known of a successor
        return None
    return None


def require_no_conflict(gate: GateFolder, failure: BaseException) -> None:
    """Raise CheckpointConflict if Spark has found a file of another run, and this run may write.

    Raises WriterReplaced if another run has taken the checkpoint.
    """
    if not is_late_write(str(failure)):
        return
    _require_writer(gate, failure)
    message = "another run has written to Spark's part of this checkpoint"
    hint = (
        "Nothing is lost: start the run again."
        " If it comes again, look for another query that uses the checkpoint"
    )
    raise CheckpointConflict(message, hint=hint, gate=gate.root) from failure


def _require_writer(gate: GateFolder, failure: BaseException) -> None:
    """Raise WriterReplaced if that is the cause of a failure.

    A run that was replaced while it was paused may continue in the middle of a sink's commit or of
    a write to Spark's own log; the error there has another name.
    """
    replaced = find_successor(gate)
    if replaced is not None:
        raise replaced from failure
