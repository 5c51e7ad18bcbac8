"""Single values of a response."""

import pytest

from tidegate.producer.spanner.values import (
    flag,
    integer,
    is_null,
    items,
    json_object,
    json_values,
    merge,
    struct_fields,
    text_of,
    text_or_empty,
    values_of_text,
)
from tidegate.schemas.errors import SchemaError


@pytest.mark.parametrize(
    ("begun", "rest", "whole"),
    [
        ("ab", "cd", "abcd"),
        (["a"], [], ["a"]),
        ([], ["a"], ["a"]),
        (["a", "b"], ["c", "d"], ["a", "bc", "d"]),
        (["a"], ["", "b"], ["a", "b"]),
        ([["a"], ["b"]], [["c"], "d"], [["a"], ["bc"], "d"]),
        (["a", None], ["b"], ["a", None, "b"]),
        (["a"], [None, "b"], ["a", None, "b"]),
        ([True], [False], [True, False]),
        ([1.0], [2.0], [1.0, 2.0]),
    ],
)
def test_chunks_are_joined_as_the_api_says(wire, begun, rest, whole):
    value = wire.value(begun)
    merge(value, wire.value(rest))
    assert value == wire.value(whole)


@pytest.mark.parametrize(
    ("begun", "rest"),
    [("a", ["b"]), (["a"], "b"), (None, None), (True, True), (1, 2), (["a"], [["b"]])],
)
def test_what_cannot_be_joined_is_refused(wire, begun, rest):
    with pytest.raises(SchemaError):
        merge(wire.value(begun), wire.value(rest))


def test_deep_nesting_is_walked_without_recursion(wire):
    begun, rest = wire.value("a"), wire.value("b")
    for _ in range(50):
        outer = wire.value([]), wire.value([])
        outer[0].list_value.values.append(begun)
        outer[1].list_value.values.append(rest)
        begun, rest = outer
    merge(begun, rest)
    for _ in range(50):
        begun = begun.list_value.values[0]
    assert begun.string_value == "ab"


def raw(wire, plain):
    return wire.value(plain).SerializeToString()


def test_each_kind_is_read(wire):
    assert text_of(raw(wire, ""), "f") == ""
    assert text_or_empty(raw(wire, None), "f") == ""
    assert flag(raw(wire, False), "f") is False
    assert integer(raw(wire, "-5"), "f") == integer(raw(wire, -5), "f") == -5
    assert json_object(raw(wire, '{"a":null}'), "f") == {"a": None}
    assert json_object(raw(wire, None), "f") == {}
    assert list(items(raw(wire, None), "f")) == []
    assert len(struct_fields(raw(wire, ["a", None]), 2, "f")) == 2
    assert is_null(raw(wire, None))
    assert not is_null(raw(wire, ""))


@pytest.mark.parametrize(
    ("read", "plain"),
    [(text_of, None), (text_of, 1), (text_or_empty, True), (flag, None), (flag, "true"),
     (integer, ""), (integer, "-"), (integer, "1.5"), (integer, "9" * 21), (integer, 0.5),
     (integer, None), (integer, True), (json_object, "[]"), (json_object, "{"), (json_object, 1),
     (items, "a"), (items, {})],
)  # fmt: skip
def test_another_kind_is_refused_by_name(wire, read, plain):
    value = raw(wire, plain) if plain != {} else raw(wire, True)
    with pytest.raises(SchemaError, match="field='f'"):
        read(value, "f")


def test_a_struct_of_another_size_is_refused(wire):
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


def test_a_text_that_is_not_utf_8_stays_unreadable():
    """Or it would become another value on its way through the dead-letter topic."""
    values = json_values(b'\x1a\x09{"a":"\xff"}', "f")

    assert "\\xff" in values.text
    with pytest.raises(SchemaError):
        len(values_of_text(values.text, "f"))
