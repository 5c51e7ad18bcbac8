"""Changes written by the accelerator, against the Python code beside it: bytes and errors."""

import gc
import math
import tracemalloc
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.any_schema.values import KINDS
from tests.unit.producer.translation.test_values import NUMBERS
from tidegate.producer.accelerator import accelerator
from tidegate.producer.translation.avro_fields import field_writer, usual_form, write_long
from tidegate.producer.translation.change_writer import SourceWriter
from tidegate.producer.translation.event_fields import (
    as_bytes,
    json_field,
    json_form,
    json_key_field,
    json_key_form,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

pytestmark = pytest.mark.usefixtures("compiled")

TYPES = list(dict.fromkeys(ColumnType.from_type_json(kind.type_json) for kind in KINDS))


def avro(timestamps):
    return partial(field_writer, timestamps=timestamps), partial(usual_form, timestamps=timestamps)


def as_json(envelope):
    return lambda one: as_bytes(json_field(one, envelope)), partial(json_form, envelope=envelope)


NOTATIONS = {
    **{f"Avro, {form.value}": avro(form) for form in TimestampForm},
    **{f"JSON of {one.value}": as_json(one) for one in (Envelope.DEBEZIUM, Envelope.DATASTREAM)},
    "JSON of keys": (lambda one: as_bytes(json_key_field(one)), json_key_form),
}
"""For the writer of a type's values, and for the usual form of these."""
CASES = [(one, notation) for one in TYPES for notation in NOTATIONS]

SMALL_INTEGERS = st.integers(-300, 40_000).map(str)
DATES = st.dates().map(lambda day: day.isoformat())
TIMES = st.datetimes().map(lambda at: f"{at.isoformat()}Z")
VALUES = st.one_of(
    st.sampled_from([kind.as_json(value) for kind in KINDS for value in kind.extremes]),
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(),
    st.text(max_size=3).map(lambda text: text * 500),
    st.text(st.characters(categories=["Cs", "Nd", "Lo"]), max_size=4),
    NUMBERS,
    st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: f"{Decimal(f'{n}e-9'):f}"),
    st.integers(-(2**64), 2**64).map(str),
    SMALL_INTEGERS,
    DATES,
    TIMES,
    st.builds(lambda text, at, c: text[:at] + c + text[at + 1 :], DATES | TIMES,
              st.integers(0, 30), st.sampled_from(["", "x", "-", "0", "9", "é", "\0", "¹", "٣"])),
    st.lists(st.none() | st.text(max_size=3) | SMALL_INTEGERS | TIMES, max_size=3),
    st.just({}),
)  # fmt: skip
NUMBERS_IN_BYTES = [-(2**63) * 10**9]
NUMBERS_IN_BYTES += [sign * 2**bits for sign in (1, -1) for bits in (7, 8, 63, 64, 126)]
EDGES = {
    "INT64": ["0", "00", "07", "-0", "-07", "-7", "-", "", "0" * 18, "9" * 18, str(-(2**63)),
              "9" * 19, "9" * 20, 5],
    "NUMERIC": ["1.0000000001", "1.0000000000", ".", "-.", "5.", "-.5", ".-5", "-0",
                "9" * 29 + "." + "9" * 9, "-" + "9" * 29 + "." + "9" * 9, "9" * 30,
                *(f"{Decimal(f'{number}e-9'):f}" for number in NUMBERS_IN_BYTES)],
    "FLOAT64": [math.nan],
    "TIMESTAMP": ["2024-01-02T03:04:05.678901001Z", "0001-01-01T00:00:00.000001Z",
                  "1969-12-31T23:59:59.999999Z"],
    "STRING": ["\ud800", "x" * 20_000, "é" * 20_000, *map(chr, range(0xA1)), 'a"', "\\", "\u2028"],
}  # fmt: skip


def written(write, value):
    try:
        return write(value)
    except SchemaError as error:
        return error.message, error.fields


def compiled_writer(column_type, notation):
    general, form = (part(column_type) for part in NOTATIONS[notation])
    piece = (form, 1, "c", general)
    write = accelerator().shape_writer([("fixed", 0, b"key", None)], [piece])

    def field(value):
        key, found = write({}, {"c": value}, {}, b"", b"", b"")
        assert key == b"key"
        return found

    return field


def assert_alike(case, value):
    column_type, notation = case
    general = NOTATIONS[notation][0](column_type)
    assert written(compiled_writer(*case), value) == written(general, value)


@settings(max_examples=1_200)
@given(st.sampled_from(CASES), VALUES)
def test_any_value_of_any_type_is_written_or_refused_alike(case, value):
    assert_alike(case, value)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("code", EDGES)
def test_values_at_the_edges_are_written_or_refused_alike(code, notation):
    for value in EDGES[code]:
        assert_alike((ColumnType(code), notation), value)


@pytest.mark.parametrize(
    ("notation", "null", "without"),
    [
        ("Avro, MICROS", b"\0", ()),
        ("JSON of debezium", b"null", ()),
        ("JSON of datastream", b"null", ("NUMERIC", "DATE", "TIMESTAMP")),
        ("JSON of keys", b"null", ("NUMERIC", "DATE", "TIMESTAMP")),
    ],
)
def test_the_usual_forms_take_no_other_writer(notation, null, without):
    """Or the tests above would compare the Python code with itself."""
    writer, form = NOTATIONS[notation]
    usual = {
        "INT64": "12", "BOOL": True, "STRING": "é", "NUMERIC": "-1.5", "DATE": "2024-02-29",
        "TIMESTAMP": "2024-01-02T03:04:05.678901Z",
    }  # fmt: skip
    for code, value in usual.items():
        if code in without:
            assert form(ColumnType(code)) == "JSON"
            continue
        expected = writer(ColumnType(code))(value)
        piece = (form(ColumnType(code)), 2, "c", pytest.fail)
        write = accelerator().shape_writer([], [piece])
        assert write({}, {}, {"c": value}, b"", b"", b"") == (b"", expected)
        assert write({}, {}, {"c": None}, b"", b"", b"") == (b"", null)


def test_a_type_of_another_notation_has_no_usual_form():
    # A type with another Avro type has none.
    assert usual_form(ColumnType("NUMERIC", annotation="PG_NUMERIC")) == ""
    assert usual_form(ColumnType("TIMESTAMP"), TimestampForm.STRING) == ""
    assert usual_form(ColumnType("ARRAY", ColumnType("INT64"))) == ""


@pytest.mark.parametrize("sizes", [(0, 0, 0), (1_000, 24, 1), (1_023, 1, 0), (5_000, 1, 100_000)])
def test_changes_of_every_size_are_put_together(sizes):
    pieces = [("fixed", 0, b"x" * size, None) for size in sizes]
    write = accelerator().shape_writer(pieces[:1], pieces)
    found = write({}, {}, {}, b"before", b"0", b"a" * 2_000)
    assert found == (b"x" * sizes[0], b"x" * sum(sizes) + b"before0" + b"a" * 2_000)


def test_pieces_and_arguments_of_another_form_are_refused():
    for piece in (("other", 0, "c", None), ("INT64", 3, "c", None), ("INT64", -1, "c", None),
                  ("fixed", 0, "text", None), ("fixed", 0, b"x"), "fixed"):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            accelerator().shape_writer([], [piece])
    write = accelerator().shape_writer([], [("", 0, "c", lambda _value: "text")])
    for arguments in (({}, {}, {}), ({}, {}, {}, b"", b"", "text"), ({"c": 1}, {}, {}, *[b""] * 3)):
        with pytest.raises(TypeError):
            write(*arguments)
    with pytest.raises(KeyError):
        write({}, {}, {}, b"", b"", b"")


def test_nothing_is_kept():
    """As many bytes after thousands of changes, written and refused, as before."""
    integer = ("INT64", 1, "c", field_writer(ColumnType("INT64")))
    refused = accelerator().shape_writer([], [("fixed", 0, b"x" * 5_000, None), integer])

    def run(times):
        for _ in range(times):
            # Refused after what comes before it was too long for the buffer on the stack.
            with pytest.raises(SchemaError):
                refused({}, {"c": "x"}, {}, b"", b"", b"")
            for case in CASES[:8]:
                write = compiled_writer(*case)
                for value in ("1", "é" * 600, None, "x" * 3_000):
                    written(write, value)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        run(20)
        before = run(20)
        assert run(200) - before < 50_000
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- coordinates

SEQUENCE_TEXTS = st.one_of(
    st.integers(0, 10**21).map(str),
    st.integers(0, 10**8).map("{:08d}".format),
    st.tuples(st.integers(0, 1 << 66), st.integers(0, 1 << 66)).map("{0[0]:x}-{0[1]:X}".format),
    st.text(st.sampled_from("0123456789abcdefABCDEF-xg"), max_size=24),
    st.text(max_size=4),
)
TRANSACTION_TEXTS = st.one_of(
    st.text(st.sampled_from("ABCDabcd0123+/="), max_size=40),
    st.text(max_size=6),
    st.integers(250, 260).map("x".__mul__),
)
WHOLE_NUMBERS = st.integers(-3, 3) | st.integers(-(2**66), 2**66) | st.sampled_from(
    [2**sign + more for sign in (31, 32, 53, 62, 63, 64) for more in (-2, -1, 0, 1)]
)  # fmt: skip


def in_python(commit_us, transaction, sequence, first, count):
    key = OrderKey(commit_us, transaction, sequence_pair(sequence), first)
    source = SourceWriter("s").before_mod_number(
        SimpleNamespace(server_transaction_id=transaction, record_sequence=sequence), commit_us
    )
    return key.encode_mods(count), source, [write_long(first + n) for n in range(count)]


@settings(max_examples=600)
@given(WHOLE_NUMBERS, TRANSACTION_TEXTS, SEQUENCE_TEXTS, WHOLE_NUMBERS, st.integers(0, 5))
def test_coordinates_are_those_of_python_or_left_to_it(commit_us, transaction, sequence, first, n):
    found = accelerator().coordinates(commit_us, transaction, sequence, first, n)
    if found is not None:
        assert found == in_python(commit_us, transaction, sequence, first, n)


@pytest.mark.parametrize(
    ("commit_us", "transaction", "sequence", "first", "count"),
    [
        (1_700_000_000_123_456, "OTQ5NTY0MDIzNTc1", "00000007", 0, 20),
        (0, "", "0", 0, 1),
        (1, "tx", "9" * 19, 2**32 - 2, 2),
        (2**63 - 1, "x" * 256, f"{2**64 - 1:x}-{2**64 - 1:X}", 5, 1),
        (1_700_000_000_123_456, "tx", "0-a", 0, 0),
    ],
)
def test_usual_coordinates_are_not_left_to_python(commit_us, transaction, sequence, first, count):
    given = commit_us, transaction, sequence, first, count
    assert accelerator().coordinates(*given) == in_python(*given)


@pytest.mark.parametrize(
    "given",
    [
        (-1, "t", "0", 0, 1),
        (2**64, "t", "0", 0, 1),
        (1, "t\0", "0", 0, 1),
        (1, "é", "0", 0, 1),
        (1, "x" * 257, "0", 0, 1),
        (1, "t", "", 0, 1),
        (1, "t", "9" * 20, 0, 1),
        (1, "t", "1" * 17 + "-0", 0, 1),
        (1, "t", "0-0-0", 0, 1),
        (1, "t", "-", 0, 1),
        (1, "t", "٣", 0, 1),
        (1, "t", "0", 2**32 - 1, 2),
        (1, "t", "0", 2**40, 1),
        (1, None, "0", 0, 1),
    ],
)
def test_unusual_coordinates_are_left_to_python(given):
    assert accelerator().coordinates(*given) is None


def test_coordinates_of_another_form_are_refused():
    for refused in ((), (1, "t", "0", 0), (1, "t", "0", 0, 1, 2), ("1", "t", "0", 0, 1)):
        with pytest.raises(TypeError):
            accelerator().coordinates(*refused)
