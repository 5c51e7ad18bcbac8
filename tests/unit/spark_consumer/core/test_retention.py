"""What Kafka has removed: before a query began, and before it had read it."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.core.retention import FirstRecord, complete_from_us, require_kept
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    DataTopicChanged,
)

KEPT = {
    "bank.a": {0: FirstRecord(7, 5_000), 1: FirstRecord(0, 9_000)},
    "bank.b": {0: FirstRecord(3, 6_000)},
}


def test_an_output_is_complete_from_the_youngest_cut_on():
    whole = {"bank.a": {0: FirstRecord(0, 5_000), 1: FirstRecord(0, None)}}
    for kept, expected in (
        (whole, None), ({}, None), (KEPT, 6_000_000),
        (KEPT | {"bank.c": {0: FirstRecord(2, None)}}, 99_000_000),
    ):  # fmt: skip
        assert complete_from_us(kept, now_us=99_000_000) == expected


def test_what_is_read_next_must_be_there():
    require_kept({"bank.a": {0: 7, 1: 0}, "bank.b": {0: 4}, "bank.new": {0: 0}}, KEPT)
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.a": {0: 9, 1: 0}, "bank.b": {0: 1}}, KEPT)
    place = {"topic": "bank.b", "topic_partition": 0, "lost_from": 1, "lost_through": 2}
    before = {"committed_before": "1970-01-01T00:00:06.001000+00:00"}
    assert caught.value.fields == place | before
    assert caught.value.exit_code == 2
    # The time that is lost lies between the watermark and the first record that is left.
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.b": {0: 1}}, KEPT, watermark_us=5_500_000)
    after_that = {"committed_after": "1970-01-01T00:00:05.500000+00:00"}
    assert caught.value.fields == place | before | after_that
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.b": {0: 1}}, {"bank.b": {0: FirstRecord(3, None)}}, watermark_us=-1)
    assert caught.value.fields == place


def test_what_was_read_and_is_not_there_any_more_is_another_topic():
    kept = {"bank.a": {0: FirstRecord(0, 5_000, end=9), 1: FirstRecord(0, None, end=0)}}
    require_kept({"bank.a": {0: 9, 1: 0}}, kept)
    with pytest.raises(DataTopicChanged, match="deleted and re-created") as caught:
        require_kept({"bank.a": {0: 9, 1: 3}}, kept)
    assert caught.value.fields == {"topic": "bank.a", "topic_partition": 1, "read": 3, "end": 0}
    require_kept({"bank.gone": {0: 0}}, KEPT)
    for read in ({"bank.gone": {0: 3}}, {"bank.b": {1: 3}}):
        with pytest.raises(DataTopicChanged, match="deleted") as caught:
            require_kept(read, KEPT)
        assert (caught.value.fields["read"], caught.value.exit_code) == (3, 2)
