"""Values as DuckDB text, and string literals read as the type of what they stand beside."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING

from spanner_simulator.sql.sql_types import carrier, pg_numeric_text
from spanner_simulator.sql.terms.bound import Bound, Constant

if TYPE_CHECKING:
    from spanner_simulator.core.values import Value, ValueType


def text_literal(text: str) -> str:
    """A string for DuckDB; a NUL cannot stand in its SQL text."""
    pieces = ["'" + piece.replace("'", "''") + "'" for piece in text.split("\0")]
    return pieces[0] if len(pieces) == 1 else "(" + " || chr(0) || ".join(pieces) + ")"


def value_sql(value_type: ValueType, value: Value) -> str:
    """A value in its carrier."""
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
