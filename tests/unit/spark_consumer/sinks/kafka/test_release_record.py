"""The record of a release: written and read again, and refused where it is another's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.kafka.release_record import TRANSACTIONS, ReleaseRecord

RECORD = ReleaseRecord(
    query_id="q", release=3, after_us=10, through_us=20, rows=5, topic_id="id", topic_partitions=1
)


def test_what_is_written_is_read():
    assert RECORD.key == b"q"
    assert ReleaseRecord.parse(RECORD.value, topic="t") == RECORD


def test_its_text_is_that_of_the_protocol():
    assert RECORD.value == (
        b'{"format":1,"query_id":"q","release":3,"after_us":10,"through_us":20,"rows":5,'
        b'"topic_id":"id","topic_partitions":1}'
    )


def test_one_of_transactions_says_so():
    record = replace(RECORD, holds=TRANSACTIONS)
    assert record.value == RECORD.value[:-1] + b',"holds":"transactions"}'
    assert ReleaseRecord.parse(record.value, topic="t") == record


def test_a_field_of_a_later_program_is_left_out():
    content = json.loads(RECORD.value) | {"later": True}
    assert ReleaseRecord.parse(json.dumps(content).encode(), topic="t") == RECORD


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"format":1}',
        RECORD.value.replace(b":3,", b':"3",'),
        RECORD.value.replace(b":3,", b":true,"),
        RECORD.value.replace(b'"query_id":"q"', b'"query_id":null'),
        RECORD.value.replace(b"}", b',"holds":3}'),
    ],
)
def test_another_programs_record_is_refused(value):
    with pytest.raises(ConfigError, match="not one of Tidegate's") as caught:
        ReleaseRecord.parse(value, topic="t")
    assert caught.value.fields == {"topic": "t"}


def test_a_later_format_is_refused_by_its_number():
    with pytest.raises(ConfigError, match="format 2, this version knows 1"):
        ReleaseRecord.parse(RECORD.value.replace(b'"format":1', b'"format":2'), topic="t")
