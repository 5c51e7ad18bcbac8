"""Column types as a workload knows them: how each dialect names them, and values worth writing.

Values are in the API's plain form. Pools are small on purpose: keys collide, and edges come often.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

Dialect = Literal["GOOGLE_STANDARD_SQL", "POSTGRESQL"]
GOOGLE: Dialect = "GOOGLE_STANDARD_SQL"
POSTGRES: Dialect = "POSTGRESQL"

_POSTGRES_NAMES = {
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
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's type; `length` of STRING and BYTES, None for the greatest, and of a vector."""

    code: str
    length: int | None = None
    element: Kind | None = None

    def ddl(self, dialect: Dialect) -> str:
        """As CREATE TABLE names it."""
        if self.element is not None:
            google = "" if self.length is None else f"(vector_length=>{self.length})"
            postgres = "" if self.length is None else f" VECTOR LENGTH {self.length}"
            inner = self.element.ddl(dialect)
            return f"ARRAY<{inner}>{google}" if dialect == GOOGLE else f"{inner}[]{postgres}"
        if dialect == POSTGRES:
            sized = self.code == "STRING" and self.length is not None
            return _POSTGRES_NAMES[self.code] + (f"({self.length})" if sized else "")
        if self.code in ("STRING", "BYTES"):
            return f"{self.code}({'MAX' if self.length is None else self.length})"
        return self.code

    def type_json(self, dialect: Dialect) -> dict[str, Any]:
        """As parameters declare it."""
        if self.element is not None:
            return {"code": "ARRAY", "array_element_type": self.element.type_json(dialect)}
        annotations = {"NUMERIC": "PG_NUMERIC", "JSON": "PG_JSONB"}
        if dialect == POSTGRES and self.code in annotations:
            return {"code": self.code, "type_annotation": annotations[self.code]}
        return {"code": self.code}


def _scalars(codes: str) -> tuple[Kind, ...]:
    return tuple(Kind(code) for code in codes.split())


_KEY_KINDS = _scalars("INT64 INT64 INT64 BOOL DATE TIMESTAMP FLOAT64 STRING")
KEY_KINDS: dict[Dialect, tuple[Kind, ...]] = {
    GOOGLE: (*_KEY_KINDS, Kind("NUMERIC"), Kind("STRING", 20), Kind("BYTES", 16)),
    POSTGRES: (*_KEY_KINDS, Kind("STRING", 20), Kind("BYTES")),
}
_SCALARS = _scalars("BOOL INT64 FLOAT32 FLOAT64 NUMERIC DATE TIMESTAMP JSON STRING BYTES")
COLUMN_KINDS = (
    *_SCALARS,
    Kind("STRING", 40),
    *(Kind("ARRAY", element=kind) for kind in (*_SCALARS, Kind("STRING", 40))),
    *(Kind("ARRAY", 2, kind) for kind in _scalars("FLOAT32 FLOAT64")),
)


def _bytes(*values: bytes) -> tuple[str, ...]:
    return tuple(base64.b64encode(one).decode() for one in values)


_POOLS: dict[str, tuple[Any, ...]] = {
    "BOOL": (True, False),
    "INT64": ("0", "1", "-1", "7", "42", "1000", str(2**63 - 1), str(-(2**63)), "9007199254740993"),
    "FLOAT32": (0.0, 1.5, -2.25, 3.140000104904175, 1e10, "Infinity", "-Infinity"),
    "FLOAT64": (0.0, 1.5, -2.25, 3.14, 1e100, -1e-7, 123456789.125, "Infinity", "-Infinity"),
    "STRING": ("", "a", "Ab", "zebra", "it's", 'a "quote"', "ünïcode ✓", "line\nbreak", "x" * 18),
    "BYTES": _bytes(b"", b"a", b"\x00\xff", b"hello", b"\xfb\xff\xfe", b"0123456789abcdef"),
    "NUMERIC": ("0", "1", "1.5", "-1.25", "0.000000001", "100"),
    "TIMESTAMP": (
        *("1970-01-01T00:00:00Z", "2024-01-02T03:04:05.123456Z", "2024-01-02T03:04:06Z"),
        *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.5Z"),
    ),
    "DATE": ("0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"),
    "JSON": (
        *('{"z":1,"a":[1,null,true]}', '"text"', "1.5", "[]", "{}", "null", "12345678901234567890"),
        *('{"b":{"y":"\\u00e9","x":"a\\"b"}}', '[1.0,2e3,-0.5,"<&>"]', '{"dup":1,"c d":null}'),
    ),
}
# A NUMERIC and a TIMESTAMP reach as far as their dialect allows.
_EDGES: dict[tuple[str, Dialect], tuple[str, ...]] = {
    ("NUMERIC", GOOGLE): ("99999999999999999999999999999.999999999", f"-{'9' * 29}.{'9' * 9}"),
    ("NUMERIC", POSTGRES): ("123456789012345678901234567890.5",),
    ("TIMESTAMP", GOOGLE): ("9999-12-31T23:59:59.999999999Z",),
    ("TIMESTAMP", POSTGRES): ("9999-12-31T23:59:59.999999Z",),
}


def value(chance: Random, kind: Kind, dialect: Dialect) -> Any:
    """A value that fits; never NULL, and never a NULL in an array, which ends the emulator."""
    if kind.element is not None:
        count = chance.randrange(4) if kind.length is None else kind.length
        return [value(chance, kind.element, dialect) for _ in range(count)]
    if kind.code == "INT64" and chance.random() < 0.4:
        return str(chance.randrange(-5, 20))
    if kind.code == "STRING" and chance.random() < 0.4:
        return chance.choice("abcdef") * chance.randrange(1, 4)
    return chance.choice(_POOLS[kind.code] + _EDGES.get((kind.code, dialect), ()))
