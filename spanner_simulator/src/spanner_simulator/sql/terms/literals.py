"""Values as DuckDB text; enums of the proto bundle, whose carrier is the number.

An enum's text is the member's name.  A number without a member is a value, too, and its text is the
number.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING

from spanner_simulator.core.plain_forms import is_enum_number
from spanner_simulator.errors import out_of_range
from spanner_simulator.sql.functions.routines import routine
from spanner_simulator.sql.sql_types import carrier, pg_numeric_text
from spanner_simulator.sql.terms.bound import Bound, Constant

if TYPE_CHECKING:
    from spanner_simulator.core.values import Value, ValueType


def text_literal(text: str) -> str:
    """A string for DuckDB, whose SQL text cannot contain NUL."""
    pieces = ["'" + piece.replace("'", "''") + "'" for piece in text.split("\0")]
    return pieces[0] if len(pieces) == 1 else "(" + " || chr(0) || ".join(pieces) + ")"


def value_sql(value_type: ValueType, value: Value) -> str:
    """A value as its carrier."""
    kind = carrier(value_type)
    match value:
        case None:
            return f"CAST(NULL AS {kind})"
        case bool():
            return "TRUE" if value else "FALSE"
        case tuple():
            inner = value_type.element or value_type
            items = ", ".join(value_sql(inner, item) for item in value)
            return f"CAST([{items}] AS {kind})"
        case bytes():
            return f"unhex('{value.hex()}')"
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS {kind})"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return text_literal(value)
        case Decimal() if value_type.annotation == "PG_NUMERIC":
            return text_literal(pg_numeric_text(value))
        case Decimal():
            return f"CAST('{value:f}' AS {kind})"
        case number:
            return f"CAST('{number!r}' AS {kind})"


def literal(value_type: ValueType, value: Value, name: str = "") -> Bound:
    """A bound literal."""
    return Bound(
        value_sql(value_type, value),
        value_type,
        name=name,
        constant=Constant(value),
        is_literal=True,
    )


def member_number(kind: ValueType, text: str) -> int:
    """The number of a member by name; OUT_OF_RANGE if the enum has no such member."""
    for name, number in kind.members:
        if name == text:
            return number
    raise out_of_range(f"Out of range cast of string '{text}' to enum type {kind.proto_name}")


@routine("BIGINT", "BIGINT", "VARCHAR")
def enum_of_int(number: int, enum: str) -> int:
    """An integer as a value of an enum, which has 32 bits."""
    if not is_enum_number(number):
        raise out_of_range(f"Out of range cast of integer {number} to enum type {enum}")
    return number


@routine("BIGINT", "VARCHAR", "VARCHAR")
def no_enum_member(text: str, enum: str) -> int:
    """Reject a text that names no member of an enum."""
    raise out_of_range(f"Out of range cast of string '{text}' to enum type {enum}")


def enum_cast_sql(sql: str, source: ValueType, target: ValueType) -> str | None:
    """DuckDB's text of a conversion to or from an enum; None if neither type is an enum."""
    match source.code, target.code:
        case "INT64", "ENUM":
            return f"enum_of_int({sql}, {text_literal(target.proto_name or '')})"
        case "STRING", "ENUM":
            members = [(text_literal(name), str(number)) for name, number in target.members]
            otherwise = f"no_enum_member({sql}, {text_literal(target.proto_name or '')})"
        case "ENUM", "STRING":
            members = [(str(number), text_literal(name)) for name, number in source.members]
            otherwise = f"CAST({sql} AS VARCHAR)"
        case _:
            return None
    cases = " ".join(
        f"WHEN {source_number} THEN {target_number}" for source_number, target_number in members
    )
    return f"CASE {sql} {cases} ELSE {otherwise} END" if cases else otherwise
