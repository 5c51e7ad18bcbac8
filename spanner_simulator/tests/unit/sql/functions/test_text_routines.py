from __future__ import annotations

import pytest

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions import text_routines as texts


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (texts.text_part("abc", -2, 1), "b"),
        (texts.pg_text_to_bool(" OFF "), False),
        (texts.bytes_to_text_pg(b"\xff\x00"), "\\xff00"),
        (texts.text_to_bytes_pg("ab"), b"ab"),
        (texts.text_to_uuid("12345678123456781234567812345678"),
         "12345678-1234-5678-1234-567812345678"),
        (texts.json_scalar('{"a b":{"c":[1,true,"x",null,1.50]}}', "$['a b'].c[4]"), "1.5"),
        (texts.json_scalar('{"a":true}', "$.a"), "true"),
        (texts.json_scalar('{"a":null}', "$.a"), None),
        (texts.json_scalar("[5]", "$[1]"), None),
        (texts.json_query('{"a":null}', "$.a"), "null"),
        (texts.json_field('{"a":{"b":1.50}}', "a"), '{"b":1.5}'),
        (texts.json_field("[1]", "a"), None),
        (texts.json_element("[1,[2]]", 1), "[2]"),
        (texts.json_element("[1]", -1), None),
        (texts.jsonb_element('[1.50, {"a": 2.10}]', -1), '{"a": 2.10}'),
        (texts.jsonb_text("null"), None),
        (texts.jsonb_text('"x"'), "x"),
        (texts.jsonb_text("1.50"), "1.50"),
    ],
)  # fmt: skip
def test_values(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: texts.text_to_bytes_pg("\\xzz"), Code.INVALID_ARGUMENT),
        (lambda: texts.text_to_bytes_pg("a\\001"), Code.INVALID_ARGUMENT),
        (lambda: texts.text_to_uuid("x"), Code.OUT_OF_RANGE),
        (lambda: texts.json_normal("{"), Code.OUT_OF_RANGE),
        (lambda: texts.jsonb_normal("{"), Code.INVALID_ARGUMENT),
    ],
)
def test_refusals(call, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is code
