"""Records that Kafka does not take: how often they are tried, and what the worker stops with."""

from dataclasses import replace

import pytest

from tidegate.producer.core import effects as do
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


@pytest.mark.parametrize("failure", [None, replace(FAILURE, fault=DeliveryFault.TRANSIENT)])
def test_what_may_pass_later_is_tried_without_end(records, failure):
    assert all(records.refused(failure) == Verdict() for _ in range(1_000))


def test_other_aborts_between_the_attempts_do_not_start_the_count_again(records):
    records.refused(FAILURE)
    records.refused(None)
    records.refused(replace(FAILURE, slot=4))
    records.refused(FAILURE)

    assert records.refused(FAILURE).stops


def test_only_a_commit_of_the_slot_starts_the_count_again(records):
    records.refused(FAILURE)
    records.refused(FAILURE)
    records.delivered({4})
    assert records.refused(FAILURE).stops

    records.delivered({3, 4})
    assert not records.refused(FAILURE).stops


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
    records.delivered({3})
    verdicts = [records.refused(FAILURE) for _ in range(3)]

    assert not any(verdict.slots_to_read_again for verdict in verdicts)
    assert verdicts[-1].stops


def test_another_change_of_the_slot_has_its_own_chance(records):
    for _ in range(2):
        records.refused(FAILURE)
    records.delivered({3})
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
