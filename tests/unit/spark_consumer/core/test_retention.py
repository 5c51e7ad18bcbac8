"""What retention has removed: noted before the first batch, an error afterwards."""

import pytest

from tidegate.spark_consumer.core.retention import FirstRecord, complete_from_us, require_kept
from tidegate.spark_consumer.errors import ChangesExpired, DataTopicChanged

KEPT = {
    "bank.a": {0: FirstRecord(7, 5_000), 1: FirstRecord(0, 9_000)},
    "bank.b": {0: FirstRecord(3, 6_000)},
}


def test_what_was_never_cut_is_complete_from_the_first_change_on():
    whole = {"bank.a": {0: FirstRecord(0, 5_000), 1: FirstRecord(0, None)}}
    assert complete_from_us(whole, now_us=1) is None
    assert complete_from_us({}, now_us=1) is None


def test_the_youngest_cut_counts_and_one_without_records_is_now():
    assert complete_from_us(KEPT, now_us=99_000_000) == 6_000_000
    empty = KEPT | {"bank.c": {0: FirstRecord(2, None)}}
    assert complete_from_us(empty, now_us=99_000_000) == 99_000_000


def test_what_is_read_next_must_be_there():
    require_kept({"bank.a": {0: 7, 1: 0}, "bank.b": {0: 4}, "bank.new": {0: 0}}, KEPT)
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.a": {0: 9, 1: 0}, "bank.b": {0: 1}}, KEPT)
    assert caught.value.fields == {
        "topic": "bank.b",
        "topic_partition": 0,
        "lost_from": 1,
        "lost_through": 2,
        "committed_before": "1970-01-01T00:00:06.001000+00:00",
    }
    assert caught.value.exit_code == 2


def test_the_time_that_is_lost_lies_between_the_watermark_and_the_first_record_that_is_left():
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.b": {0: 1}}, KEPT, watermark_us=5_500_000)
    assert caught.value.fields["committed_after"] == "1970-01-01T00:00:05.500000+00:00"
    assert caught.value.fields["committed_before"] == "1970-01-01T00:00:06.001000+00:00"
    empty = {"bank.b": {0: FirstRecord(3, None)}}
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.b": {0: 1}}, empty, watermark_us=-1)
    assert not {"committed_after", "committed_before"} & caught.value.fields.keys()


def test_what_ends_before_what_was_read_is_another_topic():
    kept = {"bank.a": {0: FirstRecord(0, 5_000, end=9), 1: FirstRecord(0, None, end=0)}}
    require_kept({"bank.a": {0: 9, 1: 0}}, kept)
    with pytest.raises(DataTopicChanged, match="deleted and re-created") as caught:
        require_kept({"bank.a": {0: 9, 1: 3}}, kept)
    assert caught.value.fields == {"topic": "bank.a", "topic_partition": 1, "read": 3, "end": 0}


def test_what_was_read_and_is_not_there_any_more_was_deleted():
    require_kept({"bank.gone": {0: 0}}, KEPT)
    for read in ({"bank.gone": {0: 3}}, {"bank.b": {1: 3}}):
        with pytest.raises(DataTopicChanged, match="deleted") as caught:
            require_kept(read, KEPT)
        assert caught.value.fields["read"] == 3
        assert caught.value.exit_code == 2
