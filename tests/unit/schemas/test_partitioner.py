"""Keys stand where Kafka's Java client puts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.partitioner import murmur2, topic_partition_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # From the tests of Kafka's own clients (UtilsTest.testMurmur2).
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_javas_client(data, expected):
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_an_empty_key_has_a_place():
    assert topic_partition_of(b"", 1) == 0


@given(st.binary(max_size=40), st.integers(1, 10_000))
def test_a_key_has_one_place_among_the_topic_partitions(key, count):
    assert 0 <= topic_partition_of(key, count) < count
    assert topic_partition_of(key, count) == topic_partition_of(bytes(key), count)
