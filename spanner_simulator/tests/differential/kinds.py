"""Column types as a workload knows them: how each dialect names them, and values worth writing.

Values are in the API's plain form. Pools are small on purpose: keys collide, and edges come often.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from decimal import Decimal
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
    """A column's type; `length` of STRING and BYTES, None for the greatest."""

    code: str
    length: int | None = None
    element: Kind | None = None

    def ddl(self, dialect: Dialect) -> str:
        """As CREATE TABLE names it."""
        if self.element is not None:
            inner = self.element.ddl(dialect)
            return f"ARRAY<{inner}>" if dialect == GOOGLE else f"{inner}[]"
        if dialect == POSTGRES:
            sized = self.code == "STRING" and self.length is not None
            return _POSTGRES_NAMES[self.code] + (f"({self.length})" if sized else "")
        if self.code in ("STRING", "BYTES"):
            return f"{self.code}({'MAX' if self.length is None else self.length})"
        return self.code

    def cast_name(self, dialect: Dialect) -> str:
        """As CAST and typed literals name it."""
        if self.element is not None:
            inner = self.element.cast_name(dialect)
            return f"ARRAY<{inner}>" if dialect == GOOGLE else f"{inner}[]"
        return self.code if dialect == GOOGLE else _POSTGRES_NAMES[self.code]

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


KEY_KINDS: dict[Dialect, tuple[Kind, ...]] = {
    GOOGLE: (
        *_scalars("INT64 INT64 INT64 BOOL DATE TIMESTAMP NUMERIC FLOAT64"),
        *(Kind("STRING", 20), Kind("STRING"), Kind("BYTES", 16)),
    ),
    POSTGRES: (
        *_scalars("INT64 INT64 INT64 BOOL DATE TIMESTAMP FLOAT64"),
        *(Kind("STRING", 20), Kind("STRING"), Kind("BYTES")),
    ),
}

_PLAIN_KINDS = (
    *_scalars("BOOL INT64 FLOAT32 FLOAT64 NUMERIC DATE TIMESTAMP JSON STRING BYTES"),
    Kind("STRING", 40),
)

COLUMN_KINDS: dict[Dialect, tuple[Kind, ...]] = {
    GOOGLE: (
        *_PLAIN_KINDS,
        Kind("BYTES", 32),
        *(Kind("ARRAY", element=kind) for kind in _PLAIN_KINDS),
    ),
    POSTGRES: (*_PLAIN_KINDS, *(Kind("ARRAY", element=kind) for kind in _PLAIN_KINDS)),
}


def _bytes(*values: bytes) -> tuple[str, ...]:
    return tuple(base64.b64encode(one).decode() for one in values)


_POOLS: dict[str, tuple[Any, ...]] = {
    "BOOL": (True, False),
    "INT64": ("0", "1", "-1", "7", "42", "1000", str(2**63 - 1), str(-(2**63)), "9007199254740993"),
    "FLOAT32": (0.0, 1.5, -2.25, 3.140000104904175, 1e10, "Infinity", "-Infinity"),
    "FLOAT64": (0.0, 1.5, -2.25, 3.14, 1e100, -1e-7, 123456789.125, "Infinity", "-Infinity"),
    "STRING": ("", "a", "Ab", "zebra", "it's", 'a "quote"', "ünïcode ✓", "line\nbreak", "x" * 18),
    "BYTES": _bytes(b"", b"a", b"\x00\xff", b"hello", b"\xfb\xff\xfe", b"0123456789abcdef"),
    "DATE": ("0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"),
    "JSON": (
        *('{"z":1,"a":[1,null,true]}', '"text"', "1.5", "[]", "{}", "null", "12345678901234567890"),
        *('{"b":{"y":"\\u00e9","x":"a\\"b"}}', '[1.0,2e3,-0.5,"<&>"]', '{"dup":1,"c d":null}'),
    ),
}
_NUMERICS: dict[Dialect, tuple[str, ...]] = {
    GOOGLE: (
        *("0", "1", "1.5", "-1.25", "0.000000001", "100"),
        *("99999999999999999999999999999.999999999", "-99999999999999999999999999999.999999999"),
    ),
    POSTGRES: ("0", "1", "1.50", "-1.25", "0.000000001", "100", "123456789012345678901234567890.5"),
}
_TIMESTAMPS: dict[Dialect, tuple[str, ...]] = {
    GOOGLE: (
        *("1970-01-01T00:00:00Z", "2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:06Z"),
        *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.5Z", "9999-12-31T23:59:59.999999999Z"),
    ),
    POSTGRES: (
        *("1970-01-01T00:00:00Z", "2024-01-02T03:04:05.123456Z", "2024-01-02T03:04:06Z"),
        *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.5Z", "9999-12-31T23:59:59.999999Z"),
    ),
}


def pool(kind: Kind, dialect: Dialect) -> tuple[Any, ...]:
    """All scalar values of a kind that may be written."""
    if kind.code == "NUMERIC":
        return _NUMERICS[dialect]
    if kind.code == "TIMESTAMP":
        return _TIMESTAMPS[dialect]
    return _POOLS[kind.code]


def value(chance: Random, kind: Kind, dialect: Dialect) -> Any:
    """A value that fits; never NULL, and never a NULL in an array, which ends the emulator."""
    if kind.element is not None:
        return [value(chance, kind.element, dialect) for _ in range(chance.randrange(4))]
    if kind.code == "INT64" and chance.random() < 0.4:
        return str(chance.randrange(-5, 20))
    if kind.code == "STRING" and chance.random() < 0.4:
        return chance.choice("abcdef") * chance.randrange(1, 4)
    return chance.choice(pool(kind, dialect))


def sort_key(kind: Kind, data: Any) -> Any:
    """What orders a key's values; NULL comes first."""
    if data is None:
        return (0,)
    match kind.code:
        case "INT64":
            return 1, int(data)
        case "FLOAT64" | "FLOAT32":
            return 1, float(data)
        case "NUMERIC":
            return 1, Decimal(data)
        case "BYTES":
            return 1, base64.b64decode(data)
        case "TIMESTAMP":
            return 1, data.removesuffix("Z")
        case _:
            return 1, data


def literal(kind: Kind, data: Any, dialect: Dialect) -> str:
    """A value as SQL text."""
    if data is None:
        return "NULL"
    if kind.element is not None:
        inside = ", ".join(literal(kind.element, item, dialect) for item in data)
        if dialect == GOOGLE:
            return f"{kind.cast_name(dialect)}[{inside}]"
        return f"ARRAY[{inside}]::{kind.cast_name(dialect)}"
    match kind.code:
        case "BOOL":
            return "TRUE" if data else "FALSE"
        case "INT64":
            if data == str(-(2**63)) and dialect == POSTGRES:
                return "'-9223372036854775808'::bigint"
            return str(data)
        case "STRING":
            return _string(data, dialect)
        case "BYTES":
            raw = base64.b64decode(data)
            if dialect == POSTGRES:
                return f"'\\x{raw.hex()}'::bytea"
            return 'b"' + "".join(f"\\x{byte:02x}" for byte in raw) + '"'
        case "FLOAT32" | "FLOAT64":
            if dialect == GOOGLE:
                name = kind.cast_name(dialect)
                return f"CAST('{data}' AS {name})" if isinstance(data, str) else repr(float(data))
            return f"'{data}'::{kind.cast_name(dialect)}"
        case _:
            text = _string(str(data), dialect)
            if dialect == GOOGLE:
                return f"{kind.code} {text}"
            return f"{text}::{kind.cast_name(dialect)}"


def _string(text: str, dialect: Dialect) -> str:
    if dialect == GOOGLE:
        escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"'{escaped}'"
    return "'" + text.replace("'", "''") + "'"
