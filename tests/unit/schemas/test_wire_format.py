"""Confluent's framing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.wire_format import HEADER_BYTES, frame, frame_prefix, unframe


def test_the_header_is_a_zero_and_the_schema_id():
    assert frame(258, b"body") == b"\x00\x00\x00\x01\x02body"
    assert frame_prefix(258) == b"\x00\x00\x00\x01\x02"
    assert HEADER_BYTES == 5


@given(st.integers(0, 2**32 - 1), st.binary())
def test_what_is_framed_comes_back(schema_id, body):
    assert unframe(frame(schema_id, body)) == (schema_id, body)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x"])
def test_other_bytes_are_refused(data):
    with pytest.raises(SchemaError):
        unframe(data)


@given(st.binary(max_size=12))
def test_any_bytes_are_refused_or_come_back_as_they_are(data):
    try:
        schema_id, body = unframe(data)
    except SchemaError:
        assert len(data) < HEADER_BYTES or data[0] != 0
        return
    assert frame(schema_id, body) == data
