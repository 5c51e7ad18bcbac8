"""Serialised values, their chunks and what they hold, against protobuf's own classes."""

import pytest
from google.cloud.spanner_v1.types import PartialResultSet
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.spanner.decoding import response as raw_values
from tidegate.producer.spanner.decoding.fields import (
    flag,
    integer,
    items,
    json_object,
    json_values,
    struct_fields,
    text_of,
    text_or_empty,
    values_of_text,
)
from tidegate.producer.spanner.decoding.response import (
    LIST,
    NULL,
    TEXT,
    Chunks,
    content_of,
    elements,
    merge,
    parse_response,
    parse_value,
    row_type,
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
        return [by_parts(element) for element in elements(content)]
    return by_protobuf(parse_value(value))


def agrees_with_protobuf(message):
    """Compare; return whether protobuf accepts the bytes."""
    try:
        expected = PartialResultSet.pb().FromString(message)
    except DecodeError:
        try:
            response = parse_response(message)
            for value in response.values:
                by_parts(value)
        except (SchemaError, UnicodeDecodeError):
            pass  # or the damage is in a part that is not read
        return False
    response = parse_response(message)
    assert [by_parts(value) for value in response.values] == [*map(by_protobuf, expected.values)]
    assert response.chunked_value == expected.chunked_value
    assert type(expected.metadata).FromString(b"".join(response.metadata)) == expected.metadata
    return True


@given(MESSAGES, MESSAGES)
def test_messages_are_read_and_merged_as_protobuf_does(first, second):
    assert agrees_with_protobuf(first.SerializeToString())
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


def test_unusual_forms_of_a_value():
    for value in (
        TEXT_A + TEXT_B,  # the last one counts
        LIST_A + LIST_B,  # lists are joined
        LIST_A + TEXT_A + LIST_B,  # but not over another kind
        LIST_A + NULL, TEXT_A + UNKNOWN_FIELD, UNKNOWN_FIELD + TEXT_A, UNKNOWN_FIELD,
        GROUP + LIST_A,
        b"\x1a\x81\x00a", b"\x1a\x81\x80\x80\x00a",  # a length in more bytes than it needs
        # An empty text in a length of two bytes, and a field that is not known.
        b"\x1a\x80\x00\x0a\xfd\xff\x08" + b"x" * 147_453,
        b"\x08\x05", b"\x20\x05",  # another number of the enum of one value
        b"", b"\x1a\x00", b"\x32\x00",
    ):  # fmt: skip
        assert by_parts(value) == by_protobuf(Value.FromString(value))


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


def take(chunks, message):
    found = chunks.take(message.SerializeToString())[1]
    return [bytes(content_of(value, TEXT)).decode() for value in found]


def test_a_value_is_kept_until_its_rest_arrives(wire):
    chunks = Chunks()
    assert take(chunks, wire.message("a", "b", chunked=True)) == ["a"]
    assert not chunks.is_between_values
    assert chunks.unfinished_bytes == len(wire.value("b").SerializeToString())
    assert take(chunks, wire.message()) == []
    assert take(chunks, wire.message("c", chunked=True)) == []
    with pytest.raises(SchemaError, match="middle of a value"):
        chunks.end()
    assert take(chunks, wire.message("d", "e")) == ["bcd", "e"]
    assert chunks.is_between_values
    assert chunks.unfinished_bytes == 0
    chunks.end()


def test_the_metadata_of_a_message(wire):
    message = wire.message(metadata=wire.JSONB_TYPE).SerializeToString()
    metadata, values = Chunks().take(message)
    assert list(values) == []
    (column,) = row_type(metadata).fields
    assert column.name == wire.JSONB_TYPE.fields[0].name
    assert Chunks().take(wire.message("a").SerializeToString())[0] == b""
    assert row_type(b"") is not None
    for read in (row_type, Chunks().take):
        with pytest.raises(SchemaError):
            read(b"\xff\xff")


@pytest.mark.parametrize(
    ("begun", "rest", "whole"),
    [
        ("ab", "cd", "abcd"), (["a"], [], ["a"]), ([], ["a"], ["a"]),
        (["a", "b"], ["c", "d"], ["a", "bc", "d"]), (["a"], ["", "b"], ["a", "b"]),
        ([["a"], ["b"]], [["c"], "d"], [["a"], ["bc"], "d"]),
        (["a", None], ["b"], ["a", None, "b"]), (["a"], [None, "b"], ["a", None, "b"]),
        ([True], [False], [True, False]), ([1.0], [2.0], [1.0, 2.0]),
        # What cannot be joined is refused.
        ("a", ["b"], None), (["a"], "b", None), (None, None, None), (True, True, None),
        (1, 2, None), (["a"], [["b"]], None),
    ],
)  # fmt: skip
def test_chunks_are_joined_as_the_api_says(wire, begun, rest, whole):
    for _ in range(40):  # however deep they are, without recursion
        value = wire.value(begun)
        if whole is None:
            with pytest.raises(SchemaError):
                merge(value, wire.value(rest))
            return
        merge(value, wire.value(rest))
        assert value == wire.value(whole)
        begun, rest, whole = [begun], [rest], [whole]


def raw(wire, plain):
    return wire.value(plain).SerializeToString()


@pytest.mark.parametrize(
    ("read", "values"),
    [(text_of, [None, 1]), (text_or_empty, [True]), (flag, [None, "true"]),
     (integer, ["", "-", "1.5", "9" * 21, 0.5, None, True]), (json_object, ["[]", "{", 1]),
     (items, ["a", True])],
)  # fmt: skip
def test_another_kind_is_refused_by_name(wire, read, values):
    for value in values:
        with pytest.raises(SchemaError, match="field='f'"):
            read(raw(wire, value), "f")
    with pytest.raises(SchemaError, match="number of fields"):
        struct_fields(raw(wire, ["a"]), 2, "f")


def test_values_are_read_again_from_their_text(wire):
    assert values_of_text('{"a":1}', "f") == json_values(raw(wire, '{"a":1}'), "f") == {"a": 1}
    assert json_values(raw(wire, None), "f") == {}
    assert values_of_text('{"a":"\ud800"}', "f").text  # which no UTF-8 holds
    for text in ("{", "[]", ""):
        assert values_of_text(text, "f").text == json_values(raw(wire, text), "f").text == text
    with pytest.raises(SchemaError, match="field='f'"):
        dict(values_of_text("{", "f"))
    # A text that is not UTF-8 stays unreadable on its way through the dead-letter topic.
    values = json_values(b'\x1a\x09{"a":"\xff"}', "f")
    assert "\\xff" in values.text
    with pytest.raises(SchemaError):
        len(values_of_text(values.text, "f"))
