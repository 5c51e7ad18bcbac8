"""The fleet's errors, and the list of what a worker retries: with an object and a remedy."""

import json
import pickle

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.errors import (
    DeliveryDenied,
    MessageTooLarge,
    PositionExpired,
    ProducerFencedError,
    ProgressLost,
    QueryError,
    QueryInterrupted,
    QueryRefused,
    RedriveFailed,
    StreamChangedError,
    TableChanged,
    TooManyParkedKeys,
)
from tidegate.producer.observation.faults import (
    IN_THE_LOG,
    RetriedFault,
    RetriedFaults,
    faults_of_json,
    note_event,
    note_silent,
)
from tidegate.schemas.errors import ProducerError, UnreachableError


def test_only_interruptions_are_retriable():
    kinds = {QueryError, QueryRefused, PositionExpired, ProducerFencedError, TableChanged}
    assert not any(kind.retriable for kind in kinds)
    assert QueryInterrupted.retriable
    assert all(issubclass(kind, ProducerError) for kind in kinds)
    assert QueryInterrupted("m", code="ABORTED").code == "ABORTED"
    assert QueryError("m").code == "UNKNOWN"
    assert (MessageTooLarge.exit_code, DeliveryDenied.exit_code) == (1, 2)
    too_large = MessageTooLarge.of("t", key="k", size_bytes=9, limit_bytes=None)
    assert too_large.fields == {"topic": "t", "key": "k", "size_bytes": 9}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProducerFencedError("w1"), "w1"),
        (StreamChangedError(["slots: 16, now 8", "group"]), "slots: 16, now 8; group"),
        (
            ProgressLost("a slot moved backwards", slot=3, was=7, now=0),
            "a slot moved backwards (slot=3, was=7, now=0)",
        ),
        (TooManyParkedKeys("p1", keys=1_000), "p1"),
        (RedriveFailed("the transaction was aborted"), "aborted"),
        (MessageTooLarge.of("t", key="k" * 5_000, size_bytes=9, limit_bytes=None), "k" * 100 + "…"),
        (TableChanged("m", table="t"), "m"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_an_error_says_what_to_do_and_survives_pickling(error, text):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), getattr(again, "table", None)) == (
        str(error), getattr(error, "table", None),
    )  # fmt: skip
    assert text in str(error)
    assert error.hint or isinstance(error, TableChanged)


REFUSED = on.DeliveryFailure(
    on.DeliveryFault.TRANSIENT, "NOT_ENOUGH_REPLICAS", 1, "bank.Users", "7", 90
)
SECRET = "row 4711 of projects/p/instances/i/databases/d"


def noted(event, *, with_details=True):
    faults = RetriedFaults()
    note_event(faults, event, at_us=7, with_details=with_details)
    return faults.listed()


@pytest.mark.parametrize(
    ("event", "error", "subject", "text"),
    [
        (on.QueryFailed("t", 1, QueryInterrupted(SECRET, code="ABORTED", key=SECRET)),
         "QueryInterrupted ABORTED", "t", f"{SECRET} (code='ABORTED'"),
        (on.QueryFailed("t", 1, UnreachableError(SECRET)), "UnreachableError", "t", SECRET),
        (on.TransactionAborted(SECRET), "transaction aborted", "", SECRET),
        (on.TransactionAborted(SECRET, REFUSED),
         "transaction aborted", "bank.Users", "NOT_ENOUGH_REPLICAS (90 bytes)"),
        (on.CommitUnanswered(SECRET), "commit without an answer", "", SECRET),
        (on.CommitOutcomeUnknown(SECRET), "commit of unknown outcome", "", SECRET),
    ],
    ids=["query", "unreachable", "aborted", "refused", "unanswered", "unknown"],
)  # fmt: skip
def test_what_is_retried_is_counted_and_texts_of_others_on_request_only(
    event, error, subject, text
):
    """The port has no login: rows, keys and names of databases stay in the log."""
    (found,) = noted(event)
    assert (found.error, found.subject, found.count, found.last_us) == (error, subject, 1, 7)
    assert text in found.text
    assert found.remedy.startswith("Nothing if it passes")
    (found,) = noted(event, with_details=False)
    assert SECRET not in str(found)
    assert found.text == (IN_THE_LOG if SECRET in text else text)
    assert found.remedy.startswith("Nothing if it passes")
    error = UnreachableError("the location is gone", hint="Mount the disk")  # a remedy of its own
    assert noted(on.QueryFailed("t", 1, error))[0].remedy == "Mount the disk"


def test_nothing_else_is_noted_but_what_only_the_core_notices():
    expired = on.QueryFailed("t", 1, PositionExpired("old", code="OUT_OF_RANGE"))
    for event in (expired, on.TransactionCommitted(), on.Ticked()):
        assert noted(event) == ()
    faults, counters = RetriedFaults(), Counters()
    for name in ("stalled", "unproven_finish"):
        counters.notice(name, "t")
    note_silent(faults, counters.noticed, at_us=7)
    found = {one.error: (one.subject, one.count) for one in faults.listed()}
    assert found == {"silent query": ("t", 1), "query without children": ("t", 1)}
    assert counters.counts["stalled"] == 1


def note(faults, error="QueryInterrupted", subject="t", *, at_us, text="it is away"):
    faults.note(error, subject, text=text, remedy="Wait", at_us=at_us)


@pytest.mark.rule("datastream-retried-errors")
def test_equal_faults_of_an_object_are_one_entry_with_first_and_last_time():
    faults = RetriedFaults()
    note(faults, at_us=5)
    note(faults, subject="u", at_us=6)
    note(faults, at_us=9, text="it is still away")
    assert faults.listed() == (
        RetriedFault("QueryInterrupted", "t", 2, 5, 9, "it is still away", "Wait"),
        RetriedFault("QueryInterrupted", "u", 1, 6, 6, "it is away", "Wait"),
    )


def test_the_list_is_bounded_and_keeps_what_was_seen_last():
    faults = RetriedFaults(entries_max=2)
    for at_us, subject in enumerate(("a", "b", "a", "größe")):
        note(faults, subject=subject, at_us=at_us, text="x" * 10_000)
    assert [(one.subject, one.count) for one in faults.listed()] == [("größe", 1), ("a", 2)]
    assert len(faults.listed()[0].text) == 500
    assert json.loads(faults.as_json())["dropped"] == 1
    assert faults_of_json(faults.as_json()) == (faults.listed(), 1)
    for text in ("no", "[]", "{}", '{"retried": 1, "dropped": 0}'):
        with pytest.raises((ValueError, KeyError, TypeError)):
            faults_of_json(text)
