"""A table as the contract sees it: its columns in ordinal order, their types, its primary key.

Column types come from two places in two notations: INFORMATION_SCHEMA writes `ARRAY<STRING(MAX)>`,
a data change record writes `{"code":"ARRAY","array_element_type":{"code":"STRING"}}`.  Both end as
`ColumnType`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.schemas.errors import SchemaError

__all__ = ["Column", "ColumnType", "TableSchema"]

_SPANNER_TYPE = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9_. ]*?)\s*(?:\(\s*(?:MAX|\d+)\s*\))?\s*", re.IGNORECASE
)
_NAMED_TYPE = re.compile(r"\s*(PROTO|ENUM)\s*<[^<>]*>\s*", re.IGNORECASE)
_ARRAY_TYPE = re.compile(r"\s*ARRAY\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A Spanner type: a code of `google.spanner.v1.TypeCode`, its element type, an annotation."""

    code: str
    element: ColumnType | None = None
    annotation: str = ""

    @classmethod
    def from_spanner_type(cls, text: str) -> ColumnType:
        """Read INFORMATION_SCHEMA's notation; raises SchemaError if it cannot be read."""
        if match := _ARRAY_TYPE.fullmatch(text):
            return cls("ARRAY", cls.from_spanner_type(match.group(1)))
        if match := _NAMED_TYPE.fullmatch(text):
            return cls(match.group(1).upper())
        if match := _SPANNER_TYPE.fullmatch(text):
            return cls(match.group(1).upper())
        message = "a column type that cannot be read"
        raise SchemaError(message, spanner_type=text)

    @classmethod
    def from_type_json(cls, value: Mapping[str, Any]) -> ColumnType:
        """Read a data change record's notation; raises SchemaError if there is no code in it."""
        code, element = value.get("code"), value.get("array_element_type")
        if not isinstance(code, str) or not isinstance(element, Mapping | None):
            message = "a column type without a code"
            raise SchemaError(message, type=dict(value))
        annotation = str(value.get("type_annotation") or "")
        nested = None if element is None else cls.from_type_json(element)
        return cls(code.upper(), nested, annotation)


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `key_position` counts from 1 in primary key order and is None outside the key."""

    name: str
    type: ColumnType
    ordinal: int
    key_position: int | None = None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns, in ordinal order."""

    name: str
    columns: tuple[Column, ...]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The primary key's columns, in primary key order."""
        keyed = [column for column in self.columns if column.key_position is not None]
        return tuple(sorted(keyed, key=lambda column: column.key_position or 0))

    @property
    def column_names(self) -> frozenset[str]:
        """Every column's name."""
        return frozenset(column.name for column in self.columns)
