"""Serialised values, against protobuf's own classes: any message, any damage, any size."""

import pytest
from google.cloud.spanner_v1.types import PartialResultSet
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.spanner import raw_values
from tidegate.producer.spanner.raw_values import (
    LIST,
    NULL,
    TEXT,
    content_of,
    elements,
    parse_response,
    parse_value,
)
from tidegate.schemas.errors import SchemaError


@pytest.fixture(scope="module", params=[1 << 16, 0], ids=["copies", "views"], autouse=True)
def large_bytes(request):
    """The size from which on values are views; with 0 all of them are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_values, "_LARGE_BYTES", request.param)
        yield request.param


SCALARS = st.one_of(
    st.just(Value()),
    st.just(Value(null_value=0)),
    st.just(Value(struct_value=Struct(fields={"a": Value(bool_value=True)}))),
    st.booleans().map(lambda flag: Value(bool_value=flag)),
    st.floats(allow_nan=False).map(lambda number: Value(number_value=number)),
    st.text(max_size=9).map(lambda text: Value(string_value=text)),
    st.sampled_from([125, 126, 127, 128, 129, 16_383, 16_384]).map(
        lambda size: Value(string_value="x" * size)
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4).map(
        lambda values: Value(list_value=ListValue(values=values))
    ),
    max_leaves=12,
)
MESSAGES = st.builds(
    lambda values, chunked: PartialResultSet.pb()(values=values, chunked_value=chunked),
    st.lists(VALUES, max_size=4),
    st.booleans(),
)


def by_protobuf(value):
    """A value as plain Python, by the generated class."""
    match value.WhichOneof("kind"):
        case None | "null_value":
            return None
        case "list_value":
            return [by_protobuf(one) for one in value.list_value.values]
        case "struct_value":
            return "a struct"
        case "number_value":
            return repr(value.number_value)  # damage makes NaN too, which equals nothing
        case kind:
            return getattr(value, kind)


def by_parts(value):
    """A serialised value as plain Python, one level at a time."""
    text, content = content_of(value, TEXT), content_of(value, LIST)
    assert text is None or content is None
    if text is not None:
        return str(text, "utf-8")
    if content is not None:
        return [by_parts(one) for one in elements(content)]
    return by_protobuf(parse_value(value))


def agrees_with_protobuf(message):
    """Compare; return whether protobuf accepts the bytes."""
    try:
        expected = PartialResultSet.pb().FromString(message)
    except DecodeError:
        try:
            found = parse_response(message)
            for value in found.values:
                by_parts(value)
        except (SchemaError, UnicodeDecodeError):
            pass  # or the damage is in a part that is not read
        return False
    found = parse_response(message)
    assert [by_parts(value) for value in found.values] == [*map(by_protobuf, expected.values)]
    assert found.chunked_value == expected.chunked_value
    assert type(expected.metadata).FromString(b"".join(found.metadata)) == expected.metadata
    return True


@given(MESSAGES)
def test_every_message_is_read_as_protobuf_reads_it(message):
    assert agrees_with_protobuf(message.SerializeToString())


@given(MESSAGES, MESSAGES)
def test_two_messages_in_one_are_merged_as_protobuf_merges_them(first, second):
    assert agrees_with_protobuf(first.SerializeToString() + second.SerializeToString())


@given(MESSAGES, st.data())
def test_damaged_bytes_are_what_protobuf_takes_them_for_or_refused(message, data):
    damaged = bytearray(message.SerializeToString())
    tags = st.sampled_from([0x0A, 0x0B, 0x0C, 0x11, 0x12, 0x1A, 0x20, 0x2A, 0x32, 0x80, 0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        removed = data.draw(st.integers(0, 2))
        added = data.draw(st.binary(max_size=2) | tags.map(lambda tag: bytes([tag])))
        damaged[at : at + removed] = added
    agrees_with_protobuf(bytes(damaged))


TEXT_A, TEXT_B = b"\x1a\x01a", b"\x1a\x01b"
LIST_A, LIST_B = b"\x32\x05\x0a\x03" + TEXT_A, b"\x32\x05\x0a\x03" + TEXT_B
UNKNOWN_FIELD, GROUP = b"\x52\x01x", b"\x53\x1a\x01z\x54"


@pytest.mark.parametrize(
    "value",
    [
        TEXT_A + TEXT_B,  # the last one counts
        LIST_A + LIST_B,  # lists are joined
        LIST_A + TEXT_A + LIST_B,  # but not over another kind
        LIST_A + NULL,
        TEXT_A + UNKNOWN_FIELD,
        UNKNOWN_FIELD + TEXT_A,
        UNKNOWN_FIELD,
        GROUP + LIST_A,
        b"\x1a\x81\x00a",  # a length in more bytes than it needs
        b"\x1a\x81\x80\x80\x00a",
        # An empty text in a length of two bytes, and a field that is not known.
        b"\x1a\x80\x00\x0a\xfd\xff\x08" + b"x" * 147_453,
        b"\x08\x05",  # another number of the enum of one value
        b"\x20\x05",
        b"",
        b"\x1a\x00",
        b"\x32\x00",
    ],
)
def test_unusual_forms_of_a_value(value):
    assert by_parts(value) == by_protobuf(Value.FromString(value))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 4_000_000])
def test_contents_of_every_length(size):
    value = Value(string_value="x" * size).SerializeToString()
    assert content_of(value, TEXT) == b"x" * size
    assert content_of(value, LIST) is None


@given(st.binary(max_size=8).map(lambda rest: b"\x1a" + rest) | st.binary(max_size=8))
@example(b"\x1a\x80\x80\x00")
@example(b"\x1a")
def test_any_bytes_are_a_value_or_refused(value):
    try:
        expected = Value.FromString(value)
    except DecodeError:
        with pytest.raises((SchemaError, UnicodeDecodeError)):
            by_parts(value)
        return
    assert by_parts(value) == by_protobuf(expected)


def test_a_large_value_is_not_copied_from_level_to_level(large_bytes):
    value = Value(string_value="x" * 100_000)
    for _ in range(3):
        value = Value(list_value=ListValue(values=[Value(bool_value=True), value]))
    message = PartialResultSet.pb()(values=[value], resume_token=b"token").SerializeToString()
    (found,) = parse_response(message).values
    for _ in range(3):
        assert found.obj is message
        small, found = elements(content_of(found, LIST))
        assert type(small) is (bytes if large_bytes else memoryview)
    text = content_of(found, TEXT)
    assert text.obj is message
    assert bytes(text) == b"x" * 100_000
