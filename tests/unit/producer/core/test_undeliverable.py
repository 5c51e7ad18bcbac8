"""Records that Kafka does not take: how often they are tried, and what the worker stops with."""

from dataclasses import replace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US, TOPIC
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.events import DeliveryFailure, DeliveryFault
from tidegate.producer.core.undeliverable import ATTEMPTS_MAX, UndeliverableRecords, Verdict
from tidegate.producer.errors import DeliveryDenied, DeliveryRefused, MessageTooLarge

FAILURE = DeliveryFailure(
    DeliveryFault.TOO_LARGE, "MSG_SIZE_TOO_LARGE", 3, "bank.accounts", "id-7", 1_100_000,
    commit_timestamp_us=5_000_000, limit_bytes=1_048_588,
)  # fmt: skip


@pytest.fixture
def records():
    return UndeliverableRecords()


@pytest.mark.parametrize(
    ("fault", "kind", "exit_code"),
    [
        (DeliveryFault.TOO_LARGE, MessageTooLarge, 1),
        (DeliveryFault.DENIED, DeliveryDenied, 2),
        (DeliveryFault.INVALID, DeliveryRefused, 1),
    ],
)
def test_a_lasting_fault_stops_after_three_attempts(records, fault, kind, exit_code):
    failure = replace(FAILURE, fault=fault)
    assert ATTEMPTS_MAX == 3
    assert not any(records.refused(failure).stops for _ in range(2))
    (stop,) = records.refused(failure).stops

    assert isinstance(stop, do.Stop)
    assert type(stop.error) is kind
    assert stop.error.exit_code == exit_code
    assert stop.error.hint
    assert stop.error.fields == {
        "topic": "bank.accounts",
        "key": "id-7",
        "reason": "MSG_SIZE_TOO_LARGE",
        "commit_timestamp_us": 5_000_000,
        "size_bytes": 1_100_000,
        "limit_bytes": 1_048_588,
    }


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("INVALID_TIMESTAMP", "the clock of the worker's machine"),
        ("UNSUPPORTED_COMPRESSION_TYPE", "compression.type in kafka_options"),
        ("INVALID_RECORD", "the broker's log"),
    ],
)
def test_a_reason_that_says_what_to_change_is_the_hint(records, reason, says):
    failure = replace(FAILURE, fault=DeliveryFault.INVALID, reason=reason)
    verdicts = [records.refused(failure) for _ in range(ATTEMPTS_MAX)]
    (stop,) = verdicts[-1].stops
    assert isinstance(stop, do.Stop)
    assert says in stop.error.hint


@pytest.mark.parametrize("failure", [None, replace(FAILURE, fault=DeliveryFault.TRANSIENT)])
def test_what_may_pass_later_is_tried_without_end(records, failure):
    assert all(records.refused(failure) == Verdict() for _ in range(1_000))


def test_other_aborts_between_the_attempts_do_not_start_the_count_again(records):
    records.refused(FAILURE)
    records.refused(None)
    records.refused(replace(FAILURE, slot=4))
    records.refused(FAILURE)

    assert records.refused(FAILURE).stops


ACCOUNTS, OTHERS = {"bank.accounts"}, {"bank.transfers"}


@pytest.mark.parametrize("fault", [DeliveryFault.DENIED, DeliveryFault.INVALID])
def test_a_fault_of_a_topic_is_counted_over_all_slots(records, fault):
    """One denied topic, blamed on one slot after the other."""
    verdicts = [records.refused(replace(FAILURE, fault=fault, slot=slot)) for slot in range(16)]

    assert [bool(verdict.stops) for verdict in verdicts[:3]] == [False, False, True]


@pytest.mark.parametrize("fault", [DeliveryFault.DENIED, DeliveryFault.INVALID])
def test_only_what_the_topic_takes_starts_its_count_again(records, fault):
    failure = replace(FAILURE, fault=fault)
    for _ in range(2):
        records.refused(failure)
    records.delivered({3: OTHERS, 4: set()})
    assert records.refused(failure).stops

    records.delivered({4: ACCOUNTS})
    assert not records.is_counting
    assert not records.refused(failure).stops


def test_a_record_that_is_too_large_has_three_attempts_whatever_is_committed_between(records):
    verdicts = []
    for _ in range(3):
        verdicts.append(records.refused(FAILURE))
        records.delivered({3: ACCOUNTS})

    assert [bool(verdict.stops) for verdict in verdicts] == [False, False, True]


def test_sizes_in_a_slot_are_counted_until_the_topic_takes_something_of_it(records):
    """Each attempt may name another record, the largest by then."""
    others = [replace(FAILURE, commit_timestamp_us=at) for at in range(7)]
    records.refused(others[0])
    records.refused(others[1])
    records.delivered({4: ACCOUNTS, 3: OTHERS})
    assert records.refused(others[2]).stops
    records.delivered({3: ACCOUNTS})
    assert not records.refused(others[3]).stops


def test_each_commit_writes_to_the_progress_topic(records):
    denied = replace(FAILURE, fault=DeliveryFault.DENIED, commit_timestamp_us=None)
    large = replace(FAILURE, commit_timestamp_us=None)
    for failure in (denied, large):
        for _ in range(2):
            records.refused(failure)
    records.delivered({3: set()})

    assert not records.is_counting


def test_the_records_that_are_counted_are_bounded(records):
    for at in range(3_000):
        records.refused(replace(FAILURE, slot=at, commit_timestamp_us=at))

    assert len(records._too_large) == 1_000


def test_what_a_progress_record_has_not_is_left_out(records):
    failure = replace(FAILURE, commit_timestamp_us=None, limit_bytes=None)
    for _ in range(2):
        records.refused(failure)
    (stop,) = records.refused(failure).stops

    assert set(stop.error.fields) == {"topic", "key", "reason", "size_bytes"}


def test_the_slot_of_a_change_that_is_too_large_is_read_again_before_the_worker_stops(records):
    verdicts = [records.refused(FAILURE) for _ in range(3)]

    assert [verdict.slots_to_read_again for verdict in verdicts] == [(), (3,), ()]
    assert [len(verdict.stops) for verdict in verdicts] == [0, 0, 1]


def test_a_slot_is_not_read_again_twice_for_one_change(records):
    """What is committed in between shows nothing about it."""
    for _ in range(2):
        records.refused(FAILURE)
    records.delivered({3: ACCOUNTS})
    verdict = records.refused(FAILURE)

    assert not verdict.slots_to_read_again
    assert verdict.stops


def test_another_change_of_the_slot_has_its_own_chance(records):
    for _ in range(2):
        records.refused(FAILURE)
    records.delivered({3: ACCOUNTS})
    other = replace(FAILURE, commit_timestamp_us=6_000_000)

    assert [records.refused(other).slots_to_read_again for _ in range(2)] == [(), (3,)]


@pytest.mark.parametrize(
    "failure",
    [
        replace(FAILURE, fault=DeliveryFault.DENIED),
        replace(FAILURE, fault=DeliveryFault.INVALID),
        replace(FAILURE, commit_timestamp_us=None),
    ],
    ids=["denied", "invalid", "progress"],
)
def test_reading_again_is_for_changes_that_are_too_large(records, failure):
    assert not any(records.refused(failure).slots_to_read_again for _ in range(5))


@pytest.mark.parametrize("reason", ["INVALID_TIMESTAMP", "POLICY_VIOLATION"])
def test_what_the_topic_refuses_is_published_once_its_settings_are_changed(
    bench, make_bench, log, reason
):
    bench.open_stream("a")
    bench.later()
    change = bench.change(START_US + 10)
    failure = on.DeliveryFailure(on.DeliveryFault.INVALID, reason, 0, TOPIC, "key", 100)
    bench.returns("a", change)
    for _ in range(10):
        bench.outcome = None if bench.stopped else on.TransactionAborted("no", failure)
        bench.later()
    (stop,) = bench.stopped
    assert type(stop.error) is DeliveryRefused
    assert log.data == []

    successor = make_bench(name="w2")
    successor.own(*range(SLOTS))
    successor.later()
    successor.returns("a", change)
    successor.later()
    assert log.data == list(change.messages)
