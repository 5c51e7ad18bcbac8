"""Values as the client received them, in canonical form. Whole tables: see test_bank_database."""

from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import TypeCode
from google.protobuf.struct_pb2 import Value

from tidegate.local_stack.judge.source import _column


def text(value: str | None) -> Value:
    return Value(null_value=0) if value is None else Value(string_value=value)


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (TypeCode.INT64, [text("-3"), text(None)], (-3, None)),
        (TypeCode.STRING, [text(""), text(None), text("a")], ("", None, "a")),
        (TypeCode.TIMESTAMP, [text("1970-01-01T00:00:00.000001Z")], (1,)),
        (TypeCode.BOOL, [Value(bool_value=True), text(None)], (True, None)),
    ],
)
def test_a_column_becomes_canonical(code: TypeCode, values: list[Value], expected: tuple):
    assert _column(code, values) == expected


def test_a_type_that_cannot_be_compared_is_refused():
    with pytest.raises(TypeError, match="JSON"):
        _column(TypeCode.JSON, [text("{}")])
