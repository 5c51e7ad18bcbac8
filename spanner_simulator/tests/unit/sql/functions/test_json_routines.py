from __future__ import annotations

import pytest

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions import json_routines as documents


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (documents.json_scalar('{"a b":{"c":[1,true,"x",null,1.50]}}', "$['a b'].c[4]"), "1.5"),
        (documents.json_scalar('{"a":true}', "$.a"), "true"),
        (documents.json_scalar('{"a":null}', "$.a"), None),
        (documents.json_scalar('{"a":{}}', "$.a"), None),
        (documents.json_scalar("[5]", "$.0"), "5"),
        (documents.json_scalar("[5]", "$[1]"), None),
        (documents.json_query('{"a":null}', "$.a"), "null"),
        (documents.json_query('{"a":1}', "$.b"), None),
        (documents.json_or_null("{bad"), None),
        (documents.json_or_null("[1]"), "[1]"),
        (documents.json_field('{"a":{"b":1.50}}', "a"), '{"b":1.5}'),
        (documents.json_field("[1]", "a"), None),
        (documents.json_element("[1,[2]]", 1), "[2]"),
        (documents.json_element("[1]", 1), None),
        (documents.json_element("[1]", -1), None),
        (documents.json_int("1.0"), 1),
        (documents.json_of_float(float("inf")), '"Infinity"'),
        (documents.json_of_float(float("-inf")), '"-Infinity"'),
        (documents.json_of_float(float("nan")), '"NaN"'),
        (documents.json_of_float(1e20), "1e+20"),
        (documents.json_of_int(2**53), "9007199254740992"),
        (documents.json_of_int(-(2**53) - 1), '"-9007199254740993"'),
        (documents.json_array_text(None), None),
        (documents.json_array_text(["1", None]), "[1,null]"),
        (documents.json_object_text(None, []), None),
        (documents.json_object_text(["a\n"], ["1"]), '{"a\\n":1}'),
        (documents.jsonb_element('[1.50, {"a": 2.10}]', -1), '{"a": 2.10}'),
        (documents.jsonb_element("[1]", 1), None),
        (documents.jsonb_element("{}", 0), None),
        (documents.jsonb_field("[1]", "a"), None),
        (documents.jsonb_text("null"), None),
        (documents.jsonb_text('"x"'), "x"),
        (documents.jsonb_text("1.50"), "1.50"),
    ],
)  # fmt: skip
def test_values(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: documents.json_scalar("{}", "a"), Code.OUT_OF_RANGE),
        (lambda: documents.json_scalar("{}", "$.a["), Code.OUT_OF_RANGE),
        (lambda: documents.json_int("1.5"), Code.OUT_OF_RANGE),
        (lambda: documents.json_int("9223372036854775808"), Code.OUT_OF_RANGE),
        (lambda: documents.json_int("true"), Code.OUT_OF_RANGE),
        (lambda: documents.json_float("true"), Code.OUT_OF_RANGE),
        (lambda: documents.json_bool("1"), Code.OUT_OF_RANGE),
        (lambda: documents.json_string("1"), Code.OUT_OF_RANGE),
        (lambda: documents.json_normal("{"), Code.OUT_OF_RANGE),
        (lambda: documents.jsonb_normal("{"), Code.INVALID_ARGUMENT),
        (lambda: documents.json_object_text([None], ["1"]), Code.OUT_OF_RANGE),
    ],
)
def test_refusals(call, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is code
