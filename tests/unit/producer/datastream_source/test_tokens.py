"""Tokens of stream partitions that read files."""

from tidegate.producer.datastream_source.tokens import (
    object_of,
    object_token,
    objects_minute,
    objects_token,
)


def test_a_token_says_what_it_reads_and_from_which_minute_on():
    for folder in ("shop_orders", "", "a/b", "line\nbreak"):
        assert object_of(object_token(28_333_333, folder)) == (28_333_333, folder)
    assert objects_minute(objects_token(7)) == 7


def test_other_tokens_are_none_of_them():
    for token in ("", "P", "tidegate-datastream/object/x/y", "tidegate-backfill/rest"):
        assert object_of(token) is None
        assert objects_minute(token) is None
    assert object_of(objects_token(7)) is None
    assert objects_minute(object_token(7, "a")) is None
