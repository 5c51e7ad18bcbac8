"""What Google's emulator has no answer to, by PostgreSQL's and GoogleSQL's own rules."""

from __future__ import annotations

import pytest

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions import text_routines as texts


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (texts.instr_text("banana", "an", 1, 1), 2),
        (texts.instr_text("banana", "an", 1, 2), 4),
        (texts.instr_text("banana", "an", 3, 1), 4),
        (texts.instr_text("banana", "an", -1, 1), 4),
        (texts.instr_text("banana", "an", -1, 2), 2),
        (texts.instr_text("banana", "an", -4, 1), 2),
        (texts.instr_text("banana", "xy", 1, 1), 0),
        (texts.instr_text("banana", "xy", -1, 1), 0),
        (texts.left_text("abc", 2), "ab"),
        (texts.left_text("abc", 9), "abc"),
        (texts.right_text("abc", 2), "bc"),
        (texts.right_text("abc", 0), ""),
        (texts.right_text("abc", 9), "abc"),
        (texts.pg_part("abcdef", -1, 4), "ab"),
        (texts.pg_part("abcdef", 2, 3), "bcd"),
        (texts.bytes_part(b"abc", -2, 1), b"b"),
        (texts.reverse_text("e\u0301a"), "a\u0301e"),
        (texts.text_of_code_points([97, None]), None),
        (texts.text_of_code_points([0x1F600]), "\U0001f600"),
        (texts.bytes_from_base64(" Y Q"), b"a"),
        (texts.pg_text_to_bool(" OFF "), False),
        (texts.bytes_to_text_pg(b"\xff\x00"), "\\xff00"),
        (texts.text_to_bytes_pg("a\\\\b\\001"), b"a\\b\x01"),
        (texts.text_to_uuid("12345678123456781234567812345678"),
         "12345678-1234-5678-1234-567812345678"),
        (texts.regexp_every("abcab", "a(b)(?:c)?"), ["b", "b"]),
    ],
)  # fmt: skip
def test_values(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: texts.left_text("a", -1), Code.OUT_OF_RANGE),
        (lambda: texts.right_text("a", -1), Code.OUT_OF_RANGE),
        (lambda: texts.pg_part("a", 1, -1), Code.OUT_OF_RANGE),
        (lambda: texts.instr_text("a", "a", 0, 1), Code.OUT_OF_RANGE),
        (lambda: texts.instr_text("a", "a", 1, 0), Code.OUT_OF_RANGE),
        (lambda: texts.repeat_text("ab", 2**20), Code.OUT_OF_RANGE),
        (lambda: texts.bytes_from_base64("*"), Code.OUT_OF_RANGE),
        (lambda: texts.bytes_from_hex("zz"), Code.OUT_OF_RANGE),
        (lambda: texts.text_of_code_points([0xD800]), Code.OUT_OF_RANGE),
        (lambda: texts.text_of_code_points([-1]), Code.OUT_OF_RANGE),
        (lambda: texts.text_to_bytes_pg("\\xzz"), Code.INVALID_ARGUMENT),
        (lambda: texts.text_to_uuid("x"), Code.OUT_OF_RANGE),
        (lambda: texts.pg_text_to_uuid("x"), Code.INVALID_ARGUMENT),
        (lambda: texts.regexp_first("a", "(?<!b)a"), Code.OUT_OF_RANGE),
        (lambda: texts.regexp_first("a", "(?>a)"), Code.OUT_OF_RANGE),
        (lambda: texts.regexp_first("a", "("), Code.OUT_OF_RANGE),
        (lambda: texts.regexp_every("a", "(a)(b)"), Code.OUT_OF_RANGE),
    ],
)
def test_refusals(call, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is code
