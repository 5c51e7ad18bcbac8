"""Of the messages that were refused, the one that matters, and whether its fault lasts."""

import pytest
from confluent_kafka import KafkaError

from tidegate.producer.core.events import DeliveryFailure, DeliveryFault
from tidegate.producer.kafka.refusals import Refusals, RefusedMessage, fault_of
from tidegate.producer.messages import ChangeMessage, PublishableRecord

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


def record(commit_timestamp_us, *values):
    messages = tuple(ChangeMessage("t", b"k", value, b"order", b"I", bytes(8)) for value in values)
    return PublishableRecord(commit_timestamp_us, "tx", "0", messages)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, DeliveryFault.TOO_LARGE),
        (KafkaError.RECORD_LIST_TOO_LARGE, DeliveryFault.TOO_LARGE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, DeliveryFault.DENIED),
        (KafkaError.INVALID_RECORD, DeliveryFault.INVALID),
        (KafkaError.POLICY_VIOLATION, DeliveryFault.INVALID),
        (KafkaError._PURGE_QUEUE, DeliveryFault.TRANSIENT),
        (KafkaError._MSG_TIMED_OUT, DeliveryFault.TRANSIENT),
        (KafkaError.NOT_LEADER_FOR_PARTITION, DeliveryFault.TRANSIENT),
        (KafkaError.NOT_ENOUGH_REPLICAS, DeliveryFault.TRANSIENT),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, DeliveryFault.TRANSIENT),
    ],
)
def test_codes_are_classified(code, expected):
    assert fault_of(KafkaError(code)) is expected


def test_the_largest_message_with_a_lasting_fault_matters():
    refusals, records = Refusals(), (record(10, b"v"), record(20, b"v" * 900, b"v" * 30))
    for value in (b"v", b"v" * 900, b"v" * 30):
        refusals.add(RefusedMessage(TOO_LARGE, 4, "t", b"k", value, records))
    refusals.add(RefusedMessage(PURGED, 5, "u", b"k", b"v" * 5_000))

    assert refusals.failure() == DeliveryFailure(
        DeliveryFault.TOO_LARGE, "MSG_SIZE_TOO_LARGE", 4, "t", "k",
        records[1].messages[0].size_bytes, commit_timestamp_us=20,
    )  # fmt: skip
    assert set(refusals.failures()) == {"t", "u"}


def test_a_long_key_is_cut():
    failure = RefusedMessage(TOO_LARGE, 2, "t", b"\x00" + b"k" * 500, b"v").failure()

    assert failure.key == "\\x00" + "k" * 79


def test_without_refusals_nothing_matters():
    assert Refusals().failure() is None
