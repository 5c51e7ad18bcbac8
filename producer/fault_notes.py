"""Which events of a worker are faults that it retries, and what an operator does about each."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.core.events import (
    CommitOutcomeUnknown,
    CommitUnanswered,
    DeliveryFailure,
    Event,
    QueryFailed,
    TransactionAborted,
)
from tidegate.producer.errors import QueryError
from tidegate.producer.retried_faults import RetriedFaults

IN_THE_LOG = "the worker's log has the text"
"""What stands for the text of an error, unless a setting lets it be shown."""

_QUERY = (
    "Nothing if it passes: the query is repeated from where it was. If it goes on, look at "
    "Spanner, its quotas and the network"
)
_DELIVERY = (
    "Nothing if it passes: the records are published again. If it goes on, look at the broker and "
    "the topic"
)
_COMMIT = (
    "Nothing if it passes: what was published is found out from the log. If it goes on, look at "
    "the brokers"
)
_SILENT = {
    "stalled": (
        "silent query",
        "nothing came for ten heartbeat intervals",
        "Nothing, unless it goes on: then look at Spanner and at the load of the worker",
    ),
    "unproven_finish": (
        "query without children",
        "a query ended with OK and named no child",
        "Nothing, unless the watermark stands still: then report it",
    ),
}


def note_event(
    faults: RetriedFaults, event: Event, *, at_us: int, with_details: bool = False
) -> None:
    """Count an event if it is a fault that is retried.

    Without details nothing is noted that a service or a source has written: it may hold rows.
    """
    match event:
        case QueryFailed() if event.error.retriable:
            error = event.error
            code = f" {error.code}" if isinstance(error, QueryError) else ""
            faults.note(
                f"{type(error).__name__}{code}",
                event.token,
                text=str(error) if with_details else IN_THE_LOG,
                remedy=error.hint or _QUERY,
                at_us=at_us,
            )
        case TransactionAborted():
            text, topic = _delivery(event.reason, event.failure, with_details=with_details)
            faults.note("transaction aborted", topic, text=text, remedy=_DELIVERY, at_us=at_us)
        case CommitUnanswered():
            text = event.reason if with_details else IN_THE_LOG
            faults.note("commit without an answer", "", text=text, remedy=_COMMIT, at_us=at_us)
        case CommitOutcomeUnknown():
            text, topic = _delivery(event.reason, event.failure, with_details=with_details)
            faults.note("commit of unknown outcome", topic, text=text, remedy=_COMMIT, at_us=at_us)
        case _:
            pass


def note_silent(faults: RetriedFaults, found: Iterable[tuple[str, str]], *, at_us: int) -> None:
    """Count what the core has noticed without an event: pairs of `Counters.noticed`."""
    for name, token in found:
        error, text, remedy = _SILENT[name]
        faults.note(error, token, text=text, remedy=remedy, at_us=at_us)


def _delivery(
    reason: str, failure: DeliveryFailure | None, *, with_details: bool
) -> tuple[str, str]:
    if failure is None:
        return reason if with_details else IN_THE_LOG, ""
    # Kafka's name of the error.
    return f"{failure.reason} ({failure.size_bytes} bytes)", failure.topic
