"""A table's columns in ordinal order, their types, and its primary key.

Column types come in three notations: INFORMATION_SCHEMA writes `ARRAY<STRING(MAX)>`, or `character
varying[]` in a PostgreSQL database, and a data change record of both has
`{"code":"ARRAY","array_element_type":{"code":"STRING"}}`.  All become `ColumnType`.

The catalogue describes all tables at once, and Spanner may add types and options: an unknown
notation becomes a type with that text which no Avro type carries, so only publishing that column
fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Words and the spaces between them are separate, so that matching takes linear time.  What follows
# in parentheses (a length, `MAX`, a precision, `vector_length=>128`) never changes the type's code.
_OPTIONS = r"\s*(?:\([^()]*\))?"
_SPANNER_TYPE = re.compile(
    rf"([A-Z][A-Z0-9_.]*(?: +[A-Z0-9_.]+)*){_OPTIONS}", re.ASCII | re.IGNORECASE
)
_NAMED_TYPE = re.compile(rf"(PROTO|ENUM)\s*<[^<>]*>{_OPTIONS}", re.ASCII | re.IGNORECASE)
_ARRAY_TYPE = re.compile(rf"ARRAY\s*<(.*)>{_OPTIONS}", re.ASCII | re.IGNORECASE | re.DOTALL)
_PRECISION = re.compile(r"\([^()]*\)")
_POSTGRESQL_TYPE = re.compile(
    r"((?:spanner\.|pg_catalog\.)?[a-z][a-z0-9_]*(?: [a-z]+){0,3})(\[\])?"
    r"(?: vector length [0-9]+)?",
    re.ASCII,
)
_POSTGRESQL_CODES: Mapping[str, tuple[str, str]] = {
    "boolean": ("BOOL", ""),
    "bool": ("BOOL", ""),
    "bigint": ("INT64", ""),
    "int8": ("INT64", ""),
    "oid": ("INT64", "PG_OID"),
    "real": ("FLOAT32", ""),
    "float4": ("FLOAT32", ""),
    "double precision": ("FLOAT64", ""),
    "float8": ("FLOAT64", ""),
    "numeric": ("NUMERIC", "PG_NUMERIC"),
    "character varying": ("STRING", ""),
    "varchar": ("STRING", ""),
    "text": ("STRING", ""),
    "bytea": ("BYTES", ""),
    "date": ("DATE", ""),
    "timestamp with time zone": ("TIMESTAMP", ""),
    "timestamptz": ("TIMESTAMP", ""),
    "spanner.commit_timestamp": ("TIMESTAMP", ""),
    "jsonb": ("JSON", "PG_JSONB"),
    "uuid": ("UUID", ""),
    "interval": ("INTERVAL", ""),
    "spanner.tokenlist": ("TOKENLIST", ""),
}
"""Type code and annotation of each type in Spanner's PostgreSQL, by its names."""
_SHOWN_MAX = 80


def _named(value: object, field: str) -> str:
    """Return a name for an unnamed part of a type; no name of a Spanner type contains a space."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{field} {value}" if is_number else f"{field} OF {type(value).__name__.upper()}"


def folded(name: str) -> str:
    """Return a table's or column's name in the form that Spanner compares: without case."""
    return name.lower()


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A Spanner type: a code of `google.spanner.v1.TypeCode`, its element type, an annotation.

    Any other code belongs to a type that no Avro type carries (`schemas.avro_types`).

    Spanner has no arrays of arrays, so an element has no element: nesting in received bytes cannot
    cause recursion.
    """

    code: str
    element: ColumnType | None = None
    annotation: str = ""

    @property
    def text(self) -> str:
        """The complete type as text; two types are equal if their texts are."""
        code = self.code if self.element is None else f"{self.code}<{self.element.text}>"
        return f"{code} {self.annotation}".rstrip()

    @classmethod
    def from_spanner_type(cls, text: str) -> ColumnType:
        """Parse INFORMATION_SCHEMA's notation; an unknown text becomes the type's code."""
        if match := _ARRAY_TYPE.fullmatch(text.strip()):
            return cls("ARRAY", cls._scalar(match.group(1)))
        return cls._scalar(text)

    @classmethod
    def from_postgresql_type(cls, text: str) -> ColumnType:
        """Parse the notation of a PostgreSQL database's information_schema.

        A type without a Spanner type code, or an unknown text, becomes a code with that name, which
        Tidegate does not support.
        """
        match = _POSTGRESQL_TYPE.fullmatch(_PRECISION.sub("", text.strip().lower()))
        if match is None:
            return cls._unknown(text)
        name = match[1].removeprefix("pg_catalog.")
        code, annotation = _POSTGRESQL_CODES.get(name, (name.upper(), ""))
        scalar = cls(code, None, annotation)
        return cls("ARRAY", scalar) if match[2] else scalar

    @classmethod
    def _scalar(cls, text: str) -> ColumnType:
        stripped = text.strip()
        match = _NAMED_TYPE.fullmatch(stripped) or _SPANNER_TYPE.fullmatch(stripped)
        return cls._unknown(text) if match is None else cls(match.group(1).upper())

    @classmethod
    def _unknown(cls, text: str) -> ColumnType:
        """Return a type with an unknown notation, named by its text."""
        return cls(text[:_SHOWN_MAX])

    @classmethod
    def from_type_json(cls, value: Mapping[str, Any]) -> ColumnType:
        """Parse a data change record's notation; an array of arrays is not supported.

        Any code is accepted.  A code that is not a name, such as the number that JSON has for an
        enum's unnamed value, becomes an unsupported type, so the records of other tables can still
        be read.
        """
        element = value.get("array_element_type")
        if element is None:
            return cls._from_json(value, None)
        if not isinstance(element, Mapping):
            return cls._from_json(value, cls(_named(element, "TYPE")))
        if element.get("array_element_type") is not None:
            return cls._from_json(value, cls("ARRAY"))
        return cls._from_json(value, cls._from_json(element, None))

    @classmethod
    def _from_json(cls, value: Mapping[str, Any], element: ColumnType | None) -> ColumnType:
        code, annotation = value.get("code"), value.get("type_annotation")
        named = code.upper() if isinstance(code, str) else _named(code, "TYPE_CODE")
        if annotation is None or isinstance(annotation, str):
            return cls(named, element, annotation or "")
        return cls(named, element, _named(annotation, "TYPE_ANNOTATION"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `key_position` counts from 1 in primary key order and is None outside the key.

    `is_watched` is false for a column whose values the change stream leaves out.
    """

    name: str
    type: ColumnType
    ordinal: int
    key_position: int | None = None
    is_watched: bool = True


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns, in ordinal order.

    `excludes` names the options of the change stream that leave out some of the table's changes.
    """

    name: str
    columns: tuple[Column, ...]
    excludes: tuple[str, ...] = ()

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The primary key's columns, in primary key order."""
        keyed = [column for column in self.columns if column.key_position is not None]
        return tuple(sorted(keyed, key=lambda column: column.key_position or 0))

    @property
    def column_names(self) -> frozenset[str]:
        """Every column's name."""
        return frozenset(column.name for column in self.columns)
