"""Fields are read by name, with the types that files have; another type is named."""

import pytest

from tidegate.producer.datastream.errors import InvalidEvent, WrongSchema
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.record_fields import RecordFields

HERE = Position("a.avro", 4)


def of(**values):
    return RecordFields(values, HERE, within="m")


def test_what_is_absent_or_null_has_no_value():
    for fields in (of(), of(x=None)):
        assert fields.text("x") is fields.number("x") is fields.flag("x") is fields.joined("x")
        assert fields.text("x") is None
        assert fields.texts("x") == fields.numbers("x") == ()


def test_numbers_may_be_text_and_text_numbers():
    assert of(x=363_552).text("x") == "363552"
    assert of(x="363552").number("x") == 363_552
    assert of(x=-5).number("x") == -5


def test_times_are_microseconds_or_text_with_a_zone():
    assert of(x=5).instant_us("x") == of(x="1970-01-01T00:00:00.000005Z").instant_us("x") == 5
    assert of(x="1970-01-01T01:00:00+01:00").instant_us("x") == 0
    assert of().instant_us("x") is None
    with pytest.raises(InvalidEvent, match=r"m\.x is not a time.*record=4"):
        of(x="noon").instant_us("x")


def test_arrays_and_joined_names():
    assert of(x=["a", "b"]).texts("x") == ("a", "b")
    assert of(x=[1, 2]).numbers("x") == (1, 2)
    assert of(x=["a", "b"]).joined("x") == "a.b"
    assert of(x="dbo").joined("x") == "dbo"
    assert of(x=[]).joined("x") is None


def test_what_is_needed():
    assert of(x={"a": 1}).record("x") == {"a": 1}
    assert of(x="a").needed_text("x") == "a"
    for look in (of().needed_text, of().record):
        with pytest.raises(WrongSchema, match=r"no m\.x.*record=4"):
            look("x")


def test_the_rest():
    assert of(a=1, b=2).rest(frozenset("a")) == {"b": 2}


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("text", 1.5), ("text", True), ("text", []), ("number", "x"), ("number", 1.5),
        ("number", True), ("number", "\u0661"), ("flag", 1), ("flag", "true"), ("texts", "a"),
        ("texts", [1]), ("numbers", ["1"]), ("numbers", [True]), ("joined", [1]),
        ("record", "x"), ("needed_text", {}),
    ],
)  # fmt: skip
def test_another_type_is_named(method, value):
    with pytest.raises(WrongSchema, match=r"m\.x is .* and not ") as caught:
        getattr(of(x=value), method)("x")
    assert caught.value.fields == {"file": "a.avro", "record": 4}


def test_a_long_value_is_shown_in_part():
    with pytest.raises(WrongSchema) as caught:
        of(x="y" * 10_000).flag("x")
    assert len(str(caught.value)) < 400
