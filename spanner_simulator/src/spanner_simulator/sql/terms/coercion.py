"""Conversions: implicit ones, those of CAST, and DuckDB's text for each.

A string literal takes the type of its context: dates and timestamps in GoogleSQL, every type in
PostgreSQL. It is parsed here, before any row is read, so that it can narrow a key range and an
invalid one is an error of the statement.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from spanner_simulator.errors import invalid_argument, unsupported
from spanner_simulator.sql.functions import number_routines, text_routines, time_routines
from spanner_simulator.sql.sql_types import is_same, supertype, type_name
from spanner_simulator.sql.terms.bound import Bound
from spanner_simulator.sql.terms.literals import enum_cast_sql, literal, member_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spanner_simulator.core.values import Dialect, Value, ValueType


_ZONE = f"'{time_routines.DEFAULT_ZONE}'"
_IMPLICIT: Final = {
    ("INT64", "FLOAT64"): 2,
    ("INT64", "NUMERIC"): 3,
    ("INT64", "PG_NUMERIC"): 3,
    ("FLOAT32", "FLOAT64"): 1,
    ("NUMERIC", "FLOAT64"): 2,
    ("PG_NUMERIC", "FLOAT64"): 2,
}
_IMPLICIT_LITERALS: Final = {
    ("FLOAT64", "NUMERIC"): 4,
    ("FLOAT64", "FLOAT32"): 4,
    ("INT64", "FLOAT32"): 4,
    ("INT64", "ENUM"): 4,
    ("STRING", "DATE"): 5,
    ("STRING", "TIMESTAMP"): 5,
    ("STRING", "UUID"): 5,
    ("STRING", "ENUM"): 5,
    ("STRING", "BYTES"): 9,
    ("BYTES", "PROTO"): 4,
}
# `{}` is the value; conversions in both dialects unless PostgreSQL's own table has another.
_CASTS: Final = {
    ("INT64", "FLOAT64"): "CAST({} AS DOUBLE)",
    ("INT64", "FLOAT32"): "CAST({} AS FLOAT)",
    ("INT64", "NUMERIC"): "CAST({} AS DECIMAL(38,9))",
    ("INT64", "PG_NUMERIC"): "CAST({} AS VARCHAR)",
    ("INT64", "STRING"): "CAST({} AS VARCHAR)",
    ("INT64", "BOOL"): "({} <> 0)",
    ("ENUM", "INT64"): "{}",
    ("BOOL", "INT64"): "CAST({} AS BIGINT)",
    ("BOOL", "STRING"): "CAST({} AS VARCHAR)",
    ("FLOAT32", "FLOAT64"): "CAST({} AS DOUBLE)",
    ("FLOAT64", "FLOAT32"): "CAST({} AS FLOAT)",
    ("FLOAT64", "INT64"): "float_to_int({})",
    ("FLOAT32", "INT64"): "float_to_int(CAST({} AS DOUBLE))",
    ("FLOAT64", "NUMERIC"): "float_to_numeric({})",
    ("FLOAT32", "NUMERIC"): "float_to_numeric(CAST({} AS DOUBLE))",
    ("FLOAT64", "PG_NUMERIC"): "float_to_pg_numeric({})",
    ("FLOAT32", "PG_NUMERIC"): "float_to_pg_numeric(CAST({} AS DOUBLE))",
    ("FLOAT64", "STRING"): "float_text({})",
    ("FLOAT32", "STRING"): "float32_text({})",
    ("NUMERIC", "FLOAT64"): "CAST({} AS DOUBLE)",
    ("NUMERIC", "FLOAT32"): "CAST({} AS FLOAT)",
    ("NUMERIC", "INT64"): "numeric_to_int({})",
    ("NUMERIC", "STRING"): "numeric_text({})",
    ("PG_NUMERIC", "FLOAT64"): "CAST({} AS DOUBLE)",
    ("PG_NUMERIC", "FLOAT32"): "CAST({} AS FLOAT)",
    ("PG_NUMERIC", "INT64"): "pg_numeric_to_int({})",
    ("PG_NUMERIC", "STRING"): "{}",
    ("STRING", "INT64"): "text_to_int({})",
    ("STRING", "FLOAT64"): "CAST(text_to_float({}) AS DOUBLE)",
    ("STRING", "FLOAT32"): "CAST(text_to_float({}) AS FLOAT)",
    ("STRING", "NUMERIC"): "text_to_numeric({})",
    ("STRING", "BOOL"): "text_to_bool({})",
    ("STRING", "DATE"): "text_to_date({})",
    ("STRING", "TIMESTAMP"): "text_to_timestamp({})",
    ("STRING", "BYTES"): "text_to_bytes({})",
    ("STRING", "UUID"): "text_to_uuid({})",
    ("UUID", "STRING"): "{}",
    ("BYTES", "STRING"): "bytes_to_text({})",
    ("BYTES", "PROTO"): "{}",
    ("PROTO", "BYTES"): "{}",
    ("DATE", "STRING"): "CAST({} AS VARCHAR)",
    ("DATE", "TIMESTAMP"): f"date_timestamp({{}}, {_ZONE})",
    ("TIMESTAMP", "STRING"): f"timestamp_text({{}}, {_ZONE})",
    ("TIMESTAMP", "DATE"): f"timestamp_date({{}}, {_ZONE})",
    ("INTERVAL", "STRING"): "{}",
}
_POSTGRES_CASTS: Final = {
    ("STRING", "INT64"): "pg_text_to_int({})",
    ("STRING", "FLOAT64"): "CAST(pg_text_to_float({}) AS DOUBLE)",
    ("STRING", "FLOAT32"): "CAST(pg_text_to_float({}) AS FLOAT)",
    ("STRING", "PG_NUMERIC"): "text_to_pg_numeric({})",
    ("STRING", "BOOL"): "pg_text_to_bool({})",
    ("STRING", "BYTES"): "text_to_bytes_pg({})",
    ("STRING", "PG_JSONB"): "jsonb_normal({})",
    ("STRING", "DATE"): "pg_text_to_date({})",
    ("STRING", "TIMESTAMP"): "pg_text_to_timestamp({})",
    ("STRING", "UUID"): "pg_text_to_uuid({})",
    ("BYTES", "STRING"): "bytes_to_text_pg({})",
    ("PG_JSONB", "STRING"): "{}",
}
_NOT_IN_POSTGRES: Final = frozenset((("INT64", "BOOL"), ("BOOL", "INT64"), ("DATE", "INT64")))
_READERS: Final[dict[str, Callable[[str], Value]]] = {
    "DATE": time_routines.text_to_date,
    "TIMESTAMP": time_routines.text_to_timestamp,
    "NUMERIC": number_routines.text_to_numeric,
    "JSON": text_routines.json_normal,
    "UUID": text_routines.text_to_uuid,
}
_POSTGRES_READERS: Final[dict[str, Callable[[str], Value]]] = {
    "DATE": time_routines.pg_text_to_date,
    "TIMESTAMP": time_routines.pg_text_to_timestamp,
    "INT64": number_routines.pg_text_to_int,
    "FLOAT64": lambda text: float(number_routines.pg_text_to_float(text)),
    "FLOAT32": lambda text: float(number_routines.pg_text_to_float(text)),
    "PG_NUMERIC": lambda text: Decimal(number_routines.text_to_pg_numeric(text)),
    "BOOL": text_routines.pg_text_to_bool,
    "BYTES": text_routines.text_to_bytes_pg,
    "PG_JSONB": text_routines.jsonb_normal,
    "UUID": text_routines.pg_text_to_uuid,
}


def _kind(value_type: ValueType) -> str:
    return value_type.annotation or value_type.code


def read_literal(text: str, value_type: ValueType, dialect: Dialect) -> Bound | None:
    """A string literal as a value of another type; None if the dialect does not convert it.

    Raises `SpannerError` for a text that is not a value of that type.
    """
    if value_type.code == "ENUM":
        return literal(value_type, member_number(value_type, text))
    readers = _POSTGRES_READERS if dialect == "POSTGRESQL" else _READERS
    reader = readers.get(_kind(value_type))
    if reader is None:
        return None
    return literal(value_type, reader(text))


def is_blank_array(bound: Bound) -> bool:
    """Whether an array literal has no element that gives it a type."""
    value = None if bound.constant is None else bound.constant.value
    return isinstance(value, tuple) and all(item is None for item in value)


def implicit_cost(bound: Bound, target: ValueType, dialect: Dialect) -> int | None:
    """How far an expression is from a type without CAST: 0 is there, None unreachable."""
    source = bound.value_type
    if source is None:
        return 1
    if is_same(source, target):
        return 0
    pair = (_kind(source), _kind(target))
    if bound.is_literal:
        if target.element is not None and is_blank_array(bound):
            return 1
        if dialect == "POSTGRESQL" and source.code == "STRING" and target.element is None:
            return 2
        if pair in _IMPLICIT_LITERALS:
            return _IMPLICIT_LITERALS[pair]
        if source.element is not None and target.element is not None:
            element = Bound("", source.element, is_literal=True)
            return implicit_cost(element, target.element, dialect)
    return _IMPLICIT.get(pair)


def common_type(bounds: Sequence[Bound], dialect: Dialect) -> ValueType | None:
    """The type to which all convert; None if there is none, or none has a type.

    A literal takes the type of an expression that is not one.
    """
    common: ValueType | None = None
    for bound in sorted(bounds, key=lambda bound: bound.is_literal):
        kind = bound.value_type
        if kind is None:
            continue
        if common is None:
            common = kind
        elif not bound.is_literal or implicit_cost(bound, common, dialect) is None:
            others = (other for other in bounds if other is not bound)
            if supertype(common, kind) is not None:
                common = supertype(common, kind)
            elif bound.is_literal and all(
                implicit_cost(other, kind, dialect) is not None for other in others
            ):
                common = kind
            else:
                return None
    return common


def cast_sql(
    sql: str, source: ValueType, target: ValueType, dialect: Dialect, *, is_safe: bool = False
) -> str:
    """DuckDB's text of a conversion.  Raises INVALID_ARGUMENT for an unsupported pair."""
    if source.element is not None and target.element is not None:
        if is_same(source, target):
            return sql
        inner = cast_sql("_e", source.element, target.element, dialect, is_safe=is_safe)
        return f"list_transform({sql}, lambda _e: {inner})"
    if is_same(source, target):
        return _cut(sql, source, target)
    text = enum_cast_sql(sql, source, target)
    if text is None:
        text = _template(source, target, dialect).format(sql)
    text = _cut(text, None, target)
    return f"TRY({text})" if is_safe else text


def _template(source: ValueType, target: ValueType, dialect: Dialect) -> str:
    pair = (_kind(source), _kind(target))
    template = _CASTS.get(pair)
    if dialect == "POSTGRESQL":
        template = _POSTGRES_CASTS.get(pair, None if pair in _NOT_IN_POSTGRES else template)
    if {source.code, target.code} == {"STRING", "PROTO"}:
        raise unsupported("CAST between messages and their text form")
    if template is None:
        source_name, target_name = type_name(source, dialect), type_name(target, dialect)
        raise invalid_argument(f"Invalid cast from {source_name} to {target_name}")
    return template


def _cut(sql: str, source: ValueType | None, target: ValueType) -> str:
    """`varchar(3)` truncates; a length that is already guaranteed needs nothing."""
    if target.code != "STRING" or target.length is None:
        return sql
    if source is not None and source.length is not None and source.length <= target.length:
        return sql
    return f"left({sql}, {target.length})"
