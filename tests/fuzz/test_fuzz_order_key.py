"""Order keys from headers, record sequences from Spanner: a key, or a SchemaError."""

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.schemas.checksums import xxhash_64
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import (
    TIMESTAMP_BYTES,
    OrderKey,
    first_key_after,
    sequence_pair,
)

KEY = OrderKey(1_700_000_000_123_456, "a-transaction", (7, 8), 9).encode()


@given(st.data())
def test_damaged_bytes(damaged, assert_reportable, data):
    found = damaged(data, KEY)
    try:
        key = OrderKey.decode(found)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert key.encode() == found
        assert 0 <= xxhash_64(found) < 2**64


@given(st.binary(max_size=100))
@example(b"\0" * 29)
@example(b"\xff" * 9 + b"\0" * 21)
@example(b"\0" * 8 + b"\xff\0" + b"\0" * 20)
def test_any_bytes(assert_reportable, data):
    try:
        key = OrderKey.decode(data)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert key.encode() == data


@given(
    st.builds(
        OrderKey,
        st.integers(),
        st.text(st.characters(codec=None)),
        st.tuples(st.integers(), st.integers()),
        st.integers(),
    )
)
@example(OrderKey(0, "\ud800", (0, 0), 0))
@example(OrderKey(-1, "", (0, 0), 0))
def test_any_coordinates(assert_reportable, key):
    try:
        encoded = key.encode()
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert OrderKey.decode(encoded) == key


@given(st.text() | st.from_regex(r"[0-9a-fA-F]{0,45}-?[0-9a-fA-F]{0,45}", fullmatch=True))
@example("9" * 100_000)
@example("٣")
@example("1-2\n")
def test_any_record_sequence(assert_reportable, text):
    try:
        high, low = sequence_pair(text)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert 0 <= high < 2**64
        assert 0 <= low < 2**64
        assert text.isascii()


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
def test_any_watermark_is_a_bound(watermark_us):
    assert len(first_key_after(watermark_us)) == TIMESTAMP_BYTES
