"""The type system: column types, Python values for them, and their plain (JSON-like) form.

The plain form is at once the wire form of the API (INT64 as a decimal string, BYTES as base64,
numbers for FLOAT64) and the form inside change records' keys, new_values and old_values.
`plain_forms` reads a scalar's plain form.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from spanner_simulator.core import plain_forms
from spanner_simulator.core.timestamps import format_ns
from spanner_simulator.errors import SpannerError, failed_precondition, invalid_argument

Plain: TypeAlias = plain_forms.Plain
Dialect = Literal["GOOGLE_STANDARD_SQL", "POSTGRESQL"]
TypeCode = Literal[
    "BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP",
    "JSON", "UUID", "INTERVAL", "PROTO", "ENUM", "ARRAY", "STRUCT",
]  # fmt: skip
Annotation = Literal["PG_NUMERIC", "PG_JSONB", "PG_OID"]
# TIMESTAMP is int (nanoseconds), DATE dt.date, NUMERIC Decimal (with annotation PG_NUMERIC it
# keeps its scale and may be NaN), JSON its normalised text, UUID lower-case text, INTERVAL
# ISO 8601 text, PROTO bytes, ENUM int, ARRAY and STRUCT a tuple.
Value: TypeAlias = "bool | float | str | bytes | Decimal | dt.date | tuple[Value, ...] | None"
Row: TypeAlias = "dict[str, Value]"

KEY_CODES: Final[frozenset[TypeCode]] = frozenset(
    (
        "BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP",
        "UUID", "ENUM",
    )
)  # fmt: skip
_POSTGRES_NAMES: Final[dict[TypeCode, str]] = {
    "BOOL": "boolean",
    "INT64": "bigint",
    "FLOAT32": "real",
    "FLOAT64": "double precision",
    "NUMERIC": "numeric",
    "STRING": "character varying",
    "BYTES": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "JSON": "jsonb",
    "UUID": "uuid",
    "INTERVAL": "interval",
}


@dataclass(frozen=True, slots=True)
class ValueType:
    """A column's or result's type.

    `element` only for ARRAY, `length` None for MAX, `proto_name` for PROTO and ENUM, the names and
    numbers of its `members` for ENUM. `vector_length` is the number of elements in each array of a
    column; types on the wire do not contain it.  A STRUCT, which is allowed in results and
    parameters but not in columns, has its `fields` by name and type.
    """

    code: TypeCode
    element: ValueType | None = None
    length: int | None = None
    annotation: Annotation | None = None
    proto_name: str | None = None
    fields: tuple[tuple[str, ValueType], ...] = ()
    members: tuple[tuple[str, int], ...] = ()
    vector_length: int | None = None

    @property
    def is_key_type(self) -> bool:
        """Whether a column of this type may be part of a primary or index key."""
        return self.code in KEY_CODES and self.annotation is None

    def ddl(self, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> str:
        """The type as written in DDL and INFORMATION_SCHEMA."""
        if dialect == "POSTGRESQL":
            return self._postgres_ddl()
        if self.element is not None:
            size = self.vector_length
            vector = "" if size is None else f"(vector_length=>{size})"
            return f"ARRAY<{self.element.ddl()}>{vector}"
        if self.proto_name is not None:
            return f"`{self.proto_name}`"
        if self.code == "STRUCT":
            fields = [f"{name} {kind.ddl()}".strip() for name, kind in self.fields]
            return f"STRUCT<{', '.join(fields)}>"
        if self.code in ("STRING", "BYTES"):
            return f"{self.code}({'MAX' if self.length is None else self.length})"
        return self.code

    def _postgres_ddl(self) -> str:
        if self.element is not None:
            size = self.vector_length
            vector = "" if size is None else f" vector length {size}"
            return f"{self.element.ddl('POSTGRESQL')}[]{vector}"
        if self.annotation == "PG_OID":
            return "oid"
        name = _POSTGRES_NAMES.get(self.code, self.code)
        return f"{name}({self.length})" if self.code == "STRING" and self.length else name

    def wire_name(self) -> str:
        """The type's name in texts about a value on the wire."""
        if self.element is not None:
            return f"ARRAY<{self.element.wire_name()}>"
        return f"{self.code}<{self.proto_name}>" if self.proto_name is not None else self.ddl()

    def base_name(self, *, element: bool = True) -> str:
        """Without its length, PostgreSQL's as PG.NUMERIC; ARRAY with its element or without."""
        if self.element is not None:
            return f"ARRAY<{self.element.base_name()}>" if element else "ARRAY"
        if self.annotation is not None:
            return self.annotation.replace("_", ".", 1)
        return self.proto_name or self.code

    def json_text(self) -> str:
        """The `type` member of a change record's column types; keys are alphabetical."""
        return json.dumps(self.json_object(), separators=(",", ":"), sort_keys=True)

    def json_object(self) -> dict[str, object]:
        """The same as an object."""
        if self.element is not None:
            return {"array_element_type": self.element.json_object(), "code": "ARRAY"}
        out: dict[str, object] = {"code": self.code}
        if self.proto_name is not None:
            out["proto_type_fqn"] = self.proto_name
        if self.annotation is not None:
            out["type_annotation"] = self.annotation
        return out


def encode(value_type: ValueType, value: Value) -> Plain:
    """The plain form of a value of this type."""
    return None if value is None else encoder(value_type)(value)


@lru_cache(maxsize=4096)
def encoder(value_type: ValueType) -> Callable[[Value], Plain]:
    """A function from a value of this type other than NULL to its plain form."""
    element = value_type.element
    if element is not None:
        encode_element = encoder(element)
        return lambda value: [
            None if item is None else encode_element(item)
            for item in value  # type: ignore[union-attr]  # a tuple by construction
        ]
    if value_type.annotation == "PG_NUMERIC":
        return _encode_pg_numeric
    if value_type.code == "STRUCT":
        return _struct_encoder(value_type)
    return _ENCODERS[value_type.code]


def _struct_encoder(value_type: ValueType) -> Callable[[Value], Plain]:
    encoders = [encoder(kind) for _, kind in value_type.fields]
    return lambda value: [
        None if item is None else encode_field(item)
        for encode_field, item in zip(encoders, value, strict=True)  # type: ignore[arg-type]
    ]


def _same(value: Value) -> Plain:
    return value  # type: ignore[return-value]  # str or bool by construction


def _encode_float(value: Value) -> Plain:
    number = float(value)  # type: ignore[arg-type]  # float by construction
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _encode_bytes(value: Value) -> Plain:
    return base64.b64encode(value).decode()  # type: ignore[arg-type]  # bytes by construction


def _encode_timestamp(value: Value) -> Plain:
    return format_ns(value)  # type: ignore[arg-type]  # int by construction


def _encode_numeric(value: Value) -> Plain:
    return format_numeric(value)  # type: ignore[arg-type]  # Decimal by construction


def _encode_pg_numeric(value: Value) -> Plain:
    number: Decimal = value  # type: ignore[assignment]  # by construction
    return "NaN" if number.is_nan() else f"{number:f}"


_ENCODERS: Final[dict[TypeCode, Callable[[Value], Plain]]] = {
    "BOOL": _same,
    "INT64": str,
    "FLOAT32": _encode_float,
    "FLOAT64": _encode_float,
    "NUMERIC": _encode_numeric,
    "STRING": _same,
    "BYTES": _encode_bytes,
    "DATE": str,
    "TIMESTAMP": _encode_timestamp,
    "JSON": _same,
    "UUID": _same,
    "INTERVAL": _same,
    "PROTO": _encode_bytes,
    "ENUM": str,
}


def format_numeric(value: Decimal) -> str:
    """Shortest plain notation: 1.50 is 1.5, never an exponent, and no negative zero."""
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def decode(value_type: ValueType, plain: Plain, *, where: str) -> Value:
    """The value of a plain form; `where` names the column or parameter in an error.

    Raises `SpannerError`, mostly FAILED_PRECONDITION, the code of the real service for a value of a
    wrong type.
    """
    return decoder(value_type, where)(plain)


@lru_cache(maxsize=8192)
def decoder(value_type: ValueType, where: str) -> Callable[[Plain], Value]:
    """A function from the plain form of a value of this type, or null, to the value."""
    read = reader(value_type, where)
    return lambda plain: None if plain is None else read(plain)


@lru_cache(maxsize=8192)
def reader(value_type: ValueType, where: str) -> Callable[[Plain], Value]:
    """As `decoder`, for values other than null."""
    if value_type.element is not None:
        return _array_reader(value_type, decoder(value_type.element, where), where)
    if value_type.code == "STRUCT":
        return _struct_reader(value_type, where)
    if value_type.code == "PROTO":
        return lambda plain: plain_forms.read_proto(plain, value_type.wire_name())
    if value_type.code == "ENUM":
        return lambda plain: plain_forms.read_enum(plain, value_type.wire_name())
    read = _READERS_BY_ANNOTATION.get(value_type.annotation) or _READERS[value_type.code]
    length = value_type.length
    if length is None:
        return read

    def read_short(plain: Plain) -> Value:
        value = read(plain)
        if isinstance(value, str | bytes) and len(value) > length:
            raise _too_long(where, len(value), length)
        return value

    return read_short


def _array_reader(
    value_type: ValueType, decode_element: Callable[[Plain], Value], where: str
) -> Callable[[Plain], Value]:
    def read_array(plain: Plain) -> Value:
        if not isinstance(plain, list):
            raise failed_precondition(
                f"Could not parse {plain_forms.proto_text(plain)} as {value_type.wire_name()}",
            )
        value = tuple([decode_element(item) for item in plain])
        check_vector(value_type, value, where)
        return value

    return read_array


def check_vector(value_type: ValueType, value: Value, where: str) -> None:
    """Check a value against the `vector_length` of its column's type, if any: INVALID_ARGUMENT."""
    limit = value_type.vector_length
    if limit is None or not isinstance(value, tuple):
        return
    if len(value) != limit:
        relation = "exceeds" if len(value) > limit else "is less than"
        raise invalid_argument(
            f"Array column {where} has {len(value)} elements and {relation} the `vector_length` "
            f"limit: {limit}."
        )
    if None in value:
        raise invalid_argument(
            f"The array column {where} has `vector_length`, and Null is not allowed.."
        )


def _struct_reader(value_type: ValueType, where: str) -> Callable[[Plain], Value]:
    decoders = [decoder(kind, where) for _, kind in value_type.fields]

    def read_struct(plain: Plain) -> Value:
        if not isinstance(plain, list) or len(plain) != len(decoders):
            raise failed_precondition(
                f"Could not parse {plain_forms.proto_text(plain)} as {value_type.ddl()}",
            )
        return tuple([read(item) for read, item in zip(decoders, plain, strict=True)])

    return read_struct


def _too_long(where: str, size: int, limit: int) -> SpannerError:
    return failed_precondition(
        f"New value exceeds the maximum size limit for this column: {where}, size: {size}, "
        f"limit: {limit}.",
    )


_READERS: Final[dict[TypeCode, Callable[[Plain], Value]]] = {
    "BOOL": plain_forms.read_bool,
    "INT64": plain_forms.read_int,
    "FLOAT32": plain_forms.read_float32,
    "FLOAT64": plain_forms.read_float64,
    "NUMERIC": plain_forms.read_numeric,
    "STRING": plain_forms.read_string,
    "BYTES": plain_forms.read_bytes,
    "DATE": plain_forms.read_date,
    "TIMESTAMP": plain_forms.read_timestamp,
    "JSON": plain_forms.read_json,
    "UUID": plain_forms.read_uuid,
    "INTERVAL": plain_forms.read_interval,
}
_READERS_BY_ANNOTATION: Final[dict[Annotation | None, Callable[[Plain], Value]]] = {
    "PG_NUMERIC": plain_forms.read_pg_numeric,
    "PG_JSONB": plain_forms.read_jsonb,
}
