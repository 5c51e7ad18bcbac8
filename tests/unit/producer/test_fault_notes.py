"""What a worker retries is counted with its object and a remedy; what stops it is not."""

from __future__ import annotations

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.errors import PositionExpired, QueryInterrupted
from tidegate.producer.fault_notes import IN_THE_LOG, note_event, note_silent
from tidegate.producer.retried_faults import RetriedFaults
from tidegate.schemas.errors import UnreachableError

REFUSED = on.DeliveryFailure(
    on.DeliveryFault.TRANSIENT, "NOT_ENOUGH_REPLICAS", 1, "bank.Users", "7", 90
)


def noted(event, *, with_details=True):
    faults = RetriedFaults()
    note_event(faults, event, at_us=7, with_details=with_details)
    return faults.listed()


@pytest.mark.parametrize(
    ("event", "error", "subject", "text"),
    [
        (
            on.QueryFailed("t", 1, QueryInterrupted("away", code="UNAVAILABLE")),
            "QueryInterrupted UNAVAILABLE", "t", "away (code='UNAVAILABLE')",
        ),
        (on.QueryFailed("t", 1, UnreachableError("no answer")), "UnreachableError", "t", "no ans"),
        (on.TransactionAborted("a slot was revoked"), "transaction aborted", "", "revoked"),
        (
            on.TransactionAborted("refused", REFUSED),
            "transaction aborted", "bank.Users", "NOT_ENOUGH_REPLICAS (90 bytes)",
        ),
        (on.CommitUnanswered("timed out"), "commit without an answer", "", "timed out"),
        (on.CommitOutcomeUnknown("lost"), "commit of unknown outcome", "", "lost"),
    ],
    ids=["query", "unreachable", "aborted", "refused", "unanswered", "unknown"],
)  # fmt: skip
def test_what_is_retried_is_counted(event, error, subject, text):
    (found,) = noted(event)
    assert (found.error, found.subject, found.count, found.last_us) == (error, subject, 1, 7)
    assert text in found.text
    assert found.remedy.startswith("Nothing if it passes")


def test_texts_of_others_are_noted_on_request_only():
    """The port has no login: rows, keys and names of databases stay in the log."""
    secret = "row 4711 of projects/p/instances/i/databases/d"
    error = QueryInterrupted(secret, code="ABORTED", key=secret, table="Users")
    events = [
        on.QueryFailed("t", 1, error),
        on.TransactionAborted(secret),
        on.CommitUnanswered(secret),
        on.CommitOutcomeUnknown(secret),
    ]
    for event in events:
        assert secret in noted(event)[0].text
        (found,) = noted(event, with_details=False)
        assert secret not in str(found)
        assert found.text == IN_THE_LOG
        assert found.remedy.startswith("Nothing if it passes")
    (found,) = noted(on.TransactionAborted(secret, REFUSED), with_details=False)
    assert found.text == "NOT_ENOUGH_REPLICAS (90 bytes)"


def test_the_remedy_is_the_errors_own_where_it_has_one():
    error = UnreachableError("the location is gone", hint="Mount the disk")
    (found,) = noted(on.QueryFailed("t", 1, error))
    assert found.remedy == "Mount the disk"


@pytest.mark.parametrize(
    "event",
    [
        on.QueryFailed("t", 1, PositionExpired("old", code="OUT_OF_RANGE")),
        on.TransactionCommitted(),
        on.Ticked(),
    ],
    ids=lambda one: type(one).__name__,
)
def test_nothing_else_is(event):
    assert noted(event) == ()


def test_what_only_the_core_notices_is_counted_too():
    faults, counters = RetriedFaults(), Counters()
    for name in ("stalled", "unproven_finish"):
        counters.notice(name, "t")
    note_silent(faults, counters.noticed, at_us=7)

    found = {one.error: (one.subject, one.count) for one in faults.listed()}
    assert found == {"silent query": ("t", 1), "query without children": ("t", 1)}
    assert counters.counts["stalled"] == 1
