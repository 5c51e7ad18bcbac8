"""Kafka keys and values before anything is known of them: framed, or a SchemaError."""

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.wire_format import frame, unframe


@given(st.binary(max_size=40), st.booleans())
@example(b"", False)
@example(b"\0\0\0\0", False)
@example(b"\1\0\0\0\1", False)
def test_any_bytes(assert_reportable, data, starts_well):
    data = b"\0" + data if starts_well else data
    try:
        schema_id, body = unframe(data)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert 0 <= schema_id < 2**32
        assert frame(schema_id, body) == data
