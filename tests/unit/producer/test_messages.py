"""The size of a message is what a broker compares with a topic's limit."""

import pytest

from tidegate.producer.messages import (
    FORM_RECORD,
    FORM_REDRIVEN,
    ChangeMessage,
    ParkedChange,
    PublishableRecord,
    batch_bytes,
)
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN

HEADERS = ((HEADER_ORDER, b"o" * 36), (HEADER_MOD, b"I"))


@pytest.mark.parametrize(
    ("key", "value_bytes", "headers", "expected"),
    [
        (0, 1_930, (), 2_000),
        (3, 1_927, (), 2_000),
        (3, 1_878, HEADERS, 2_000),
        (300, 1_586, HEADERS[:1], 2_000),
        (3, 99_876, HEADERS, 100_000),
        (300, 99_584, HEADERS[:1], 100_000),
    ],
)
def test_the_largest_value_that_a_broker_took(key, value_bytes, headers, expected):
    """Found with Kafka 4.1: one byte more was refused under `max.message.bytes` = `expected`."""
    assert batch_bytes(b"k" * key, b"v" * value_bytes, headers) == expected


@pytest.mark.rule("spanner-mod-type")
def test_a_change_counts_its_headers():
    message = ChangeMessage("t", b"kkk", b"v" * 1_862, b"o" * 36, b"I", b"\0\1\2\3\4\5\6\7")

    assert message.headers == [*HEADERS, (HEADER_ORIGIN, message.origin)]
    assert message.size_bytes == 2_000


def test_a_record_has_no_parked_changes_unless_it_names_them():
    assert PublishableRecord(1, "tx", "0", ()).parked == ()


def test_a_parked_change_counts_its_headers():
    change = ParkedChange(
        "p.t", b"kkk", b"order", b"I", b"content", FORM_RECORD, "SchemaError", "a text: ä", "token"
    )

    assert change.headers == [
        ("order", b"order"),
        ("mod", b"I"),
        ("topic", b"p.t"),
        ("form", b"record"),
        ("reason", b"SchemaError"),
        ("error", "a text: ä".encode()),
        ("token", b"token"),
    ]
    assert change.value == b"content"
    assert change.size_bytes == batch_bytes(b"kkk", b"content", change.headers)
    assert change._replace(form=FORM_REDRIVEN, content=b"").value is None
