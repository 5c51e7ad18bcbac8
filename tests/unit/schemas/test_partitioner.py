"""Keys stand where Kafka's Java client puts them."""

from __future__ import annotations

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.partitioner import murmur2, topic_partition_of
from tidegate.schemas.wire_format import frame


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


KEY_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Key",
        "fields": [
            {"name": "Id", "type": ["null", "long"]},
            {"name": "S", "type": ["null", "string"]},
        ],
    }
)


def java_murmur2(data):
    """Kafka's `Utils.murmur2`, line by line, with Java's 32-bit arithmetic."""

    def as_int(number):
        return (number + 2**31) % 2**32 - 2**31

    length, m, r = len(data), 0x5BD1E995, 24
    h = as_int(0x9747B28C ^ length)
    for i in range(length // 4):
        i4 = i * 4
        k = as_int(
            (data[i4] & 0xFF) + ((data[i4 + 1] & 0xFF) << 8)
            + ((data[i4 + 2] & 0xFF) << 16) + ((data[i4 + 3] & 0xFF) << 24)
        )  # fmt: skip
        k = as_int(k * m)
        k ^= (k % 2**32) >> r
        k = as_int(k * m)
        h = as_int(h * m)
        h ^= k
    rest = length % 4
    if rest == 3:
        h ^= as_int((data[(length & ~3) + 2] & 0xFF) << 16)
    if rest >= 2:
        h ^= as_int((data[(length & ~3) + 1] & 0xFF) << 8)
    if rest >= 1:
        h ^= data[length & ~3] & 0xFF
        h = as_int(h * m)
    h ^= (h % 2**32) >> 13
    h = as_int(h * m)
    h ^= (h % 2**32) >> 15
    return h


@given(
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.integers(1, 1_000),
)
def test_framed_avro_keys_stand_where_javas_client_puts_them(schema_id, number, text, count):
    """Real keys begin with zeros and hold bytes beyond 127, of any length modulo four."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, KEY_SCHEMA, {"Id": number, "S": text})
    key = frame(schema_id, body.getvalue())

    assert murmur2(key) == java_murmur2(key) % 2**32
    assert topic_partition_of(key, count) == (java_murmur2(key) & 0x7FFFFFFF) % count
