"""The faults that a worker retries: their kinds, counts, first and last times, and remedies.

They are not recorded in Kafka, because other processes do not depend on them; the worker serves
them as `/errors`.  Equal faults of one object share an entry.  When the list is full, the entry
that was seen least recently is dropped, and counted.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from tidegate.producer.core.events import (
    CommitOutcomeUnknown,
    CommitUnanswered,
    DeliveryFailure,
    Event,
    QueryFailed,
    TransactionAborted,
)
from tidegate.producer.errors import QueryError

ERRORS_PATH = "/errors"
"""The path under which a worker serves its list."""

_ENTRIES_MAX = 200
_TEXT_MAX = 500

IN_THE_LOG = "the worker's log has the text"
"""Replaces the text of an error, unless a setting allows it to be shown."""

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


@dataclass(frozen=True, slots=True)
class RetriedFault:
    """A fault of one object."""

    error: str
    """The class of the error, or the event; with gRPC's code if there is one."""
    subject: str
    """The stream partition or the topic; empty for the worker as a whole."""
    count: int
    first_us: int
    last_us: int
    """Wall time, by the worker's clock."""
    text: str
    """The newest text."""
    remedy: str
    """What the operator should do about it."""


class RetriedFaults:
    """The faults of one process since its start; any thread may read while one writes."""

    def __init__(self, *, entries_max: int = _ENTRIES_MAX) -> None:
        """Start without faults."""
        self._entries_max = entries_max
        self._faults: OrderedDict[tuple[str, str], RetriedFault] = OrderedDict()
        self._lock = threading.Lock()
        self._dropped = 0

    def note(self, error: str, subject: str, *, text: str, remedy: str, at_us: int) -> None:
        """Count a fault."""
        with self._lock:
            before = self._faults.pop((error, subject), None)
            if before is None:
                before = RetriedFault(error, subject, 0, at_us, at_us, "", remedy)
            self._faults[error, subject] = replace(
                before, count=before.count + 1, last_us=at_us, text=text[:_TEXT_MAX]
            )
            if len(self._faults) > self._entries_max:
                self._faults.popitem(last=False)
                self._dropped += 1

    def listed(self) -> tuple[RetriedFault, ...]:
        """Return the faults, the newest first."""
        with self._lock:
            return tuple(reversed(self._faults.values()))

    def as_json(self) -> str:
        """Return the faults as one JSON object, with the number of entries that were dropped."""
        retried = [asdict(fault) for fault in self.listed()]
        return json.dumps({"retried": retried, "dropped": self._dropped}, ensure_ascii=False)


def faults_of_json(text: str) -> tuple[tuple[RetriedFault, ...], int]:
    """Parse the output of `as_json`: the faults, and the number of entries that were dropped.

    Raises ValueError, KeyError and TypeError for anything else.
    """
    page = json.loads(text)
    if not isinstance(page, dict) or not isinstance(page["retried"], list):
        raise TypeError("not a list of errors")
    return tuple(map(_fault, page["retried"])), int(page["dropped"])


def _fault(entry: Mapping[str, object]) -> RetriedFault:
    return RetriedFault(
        error=str(entry["error"]),
        subject=str(entry["subject"]),
        count=int(str(entry["count"])),
        first_us=int(str(entry["first_us"])),
        last_us=int(str(entry["last_us"])),
        text=str(entry["text"]),
        remedy=str(entry["remedy"]),
    )


def note_event(
    faults: RetriedFaults, event: Event, *, at_us: int, with_details: bool = False
) -> None:
    """Count an event if it is a fault that is retried.

    Without details, no text of a service or a source is noted, because it may hold rows.
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


def note_silent(faults: RetriedFaults, noticed: Iterable[tuple[str, str]], *, at_us: int) -> None:
    """Count faults that the core has counted without an event: pairs of `Counters.noticed`."""
    for name, token in noticed:
        error, text, remedy = _SILENT[name]
        faults.note(error, token, text=text, remedy=remedy, at_us=at_us)


def _delivery(
    reason: str, failure: DeliveryFailure | None, *, with_details: bool
) -> tuple[str, str]:
    if failure is None:
        return reason if with_details else IN_THE_LOG, ""
    # Kafka's name of the error.
    return f"{failure.reason} ({failure.size_bytes} bytes)", failure.topic
