"""Values of each type that a Spanner column may have: as they are, as JSON holds them, as plain.

A value is Python's own, but a TIMESTAMP is nanoseconds since 1970.  `as_json` is how a data change
record holds it, and `plain` the one form that values of any reader are compared in: numbers of days
and microseconds, decimals as text, NaN as text, -0.0 apart from 0.0.  Nothing here is shared with
the code under test.
"""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

MEGABYTE = 1_000_000
_PLAIN = frozenset({int, str, bytes, type(None)})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_NS_PER_DAY = 86_400 * 10**9
_SCALE = 9
_FIRST_NS = (1 - _EPOCH_DAY) * _NS_PER_DAY
_LAST_US_NS = (date.max.toordinal() - _EPOCH_DAY + 1) * _NS_PER_DAY - 1_000
_LONG = (0, 1, -1, 2**31, 2**53 + 1, -(2**63), 2**63 - 1)
_TEXTS = (
    "", "a", "\0", " ", "null", "NULL", "NaN", "'", '"', "\\", "`", "a b", "x" * 31 + "\U0010ffff",
    "x" * 40 + "a", "x" * 40 + "b", "é", "e\u0301", "İ", "\ufeff", "\uffff", "\U0010ffff",
    "__HIVE_DEFAULT_PARTITION__", "2024-01-02", "a/b=c%2F", "\r\n\t",
)  # fmt: skip
_BYTES = (b"", b"\0", b"\xff", b"\xff" * 40, b"a", b"\x80" * 33, bytes(range(256)))
_NUMERICS = tuple(
    map(
        Decimal,
        (
            "0", "1", "-1", "0.000000001", "-0.000000001", "1.5", "12345678901234567890.123456789",
            "9" * 29 + "." + "9" * 9, "-" + "9" * 29 + "." + "9" * 9, "9007199254740993",
            "1" + "0" * 28, "-1.28", "0.000032768",
        ),
    )
)  # fmt: skip
_DAYS = tuple(
    map(
        date.fromisoformat,
        ("1970-01-01", "0001-01-01", "0001-12-30", "1500-02-28", "1582-10-04", "1582-10-10",
         "1582-10-15", "1883-11-18", "1899-12-31", "2024-02-29", "9999-12-31"),
    )
)  # fmt: skip


def _ns(text: str, ns: int = 0) -> int:
    return (datetime.fromisoformat(f"{text}+00:00") - _EPOCH) // timedelta(
        microseconds=1
    ) * 1000 + ns


_TIMES = (
    0, 1_000, -1_000, 999_000, 1_001_000, _FIRST_NS, _FIRST_NS + 1_000, _LAST_US_NS,
    _ns("1582-10-04T12:00:00.000001"), _ns("1582-10-14T23:59:59.999999"),
    _ns("1677-09-21T00:12:43.145224"), _ns("1883-11-18T12:03:57.999999"),
    _ns("1900-01-01T00:00:00"), _ns("2024-03-10T02:30:00.123456"), _ns("2024-11-03T01:30:00.5"),
    _ns("2262-04-11T23:47:16.854776"), _ns("2038-01-19T03:14:08"),
)  # fmt: skip
_DOUBLES = (
    0.0, 1.0, -1.0, 0.1, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308,
    2.0**53, 1e16, 123456789.123456789,
)  # fmt: skip
_SINGLES = (
    0.0, 1.0, -1.0, -0.0, math.nan, math.inf, -math.inf, 2.0**-149, 3.4028234663852886e38,
    struct.unpack(">f", struct.pack(">f", 0.1))[0], 16777216.0,
)  # fmt: skip
_JSON = ("null", "{}", "[]", '{"a":[1,null,"\\u0000"]}', "1e400", '"\U0010ffff"', '{"a":1,"A":2}')
_UUIDS = (UUID(int=0), UUID(int=2**128 - 1), UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"))
_INTERVALS = ("P0Y", "P1Y2M3DT4H5M6.5S", "-P10000Y", "PT0.000000001S")
_PG_NUMERICS = ("0", "1.5", "1.50", "NaN", "9" * 60 + "." + "1" * 40, "0.10")


@dataclass(frozen=True)
class Kind:
    """A type: how both dialects write it, its code, and what its values are."""

    code: str
    googlesql: str = ""
    """How INFORMATION_SCHEMA writes it; empty where the dialect lacks it."""
    postgresql: str = ""
    annotation: str = ""
    is_key: bool = True
    """Whether a primary key may have it."""
    extremes: tuple[Any, ...] = ()
    of: Kind | None = None
    """The type of an array's elements."""

    @property
    def type_json(self) -> dict[str, Any]:
        """How a data change record shows it."""
        shown: dict[str, Any] = {"code": self.code}
        if self.annotation:
            shown["type_annotation"] = self.annotation
        return shown if self.of is None else {**shown, "array_element_type": self.of.type_json}

    def draw(self, rng: random.Random, *, ns: bool = False) -> Any:
        """Return a value, every second time an extreme one; with `ns`, times have nanoseconds."""
        if self.of is not None:
            return [
                None if rng.random() < 0.2 else self.of.draw(rng, ns=ns)
                for _ in range(rng.choice((0, 1, 2, 5)))
            ]
        value = rng.choice(self.extremes) if rng.random() < 0.5 else self._drawn(rng)
        if ns and self.code == "TIMESTAMP" and rng.random() < 0.5:
            value += rng.randrange(1_000)
        return value

    def _drawn(self, rng: random.Random) -> Any:
        match self.code:
            case "INT64" | "ENUM":
                return rng.randrange(2**32) if self.annotation else rng.randrange(-(2**63), 2**63)
            case "FLOAT64":
                (number,) = struct.unpack(">d", rng.getrandbits(64).to_bytes(8, "big"))
                return number
            case "FLOAT32":
                (number,) = struct.unpack(">f", rng.getrandbits(32).to_bytes(4, "big"))
                return number
            case "BOOL":
                return rng.random() < 0.5
            case "STRING" | "JSON" | "INTERVAL":
                text = "".join(map(chr, rng.choices((*range(32, 127), 233, 0x3042, 0x1F600), k=8)))
                return json.dumps(text) if self.code == "JSON" else text
            case "BYTES" | "PROTO":
                return rng.randbytes(rng.choice((1, 8, 40)))
            case "NUMERIC":
                unscaled = rng.randrange(1 - 10**38, 10**38) // 10 ** rng.randrange(38)
                text = Decimal(f"{unscaled}e-{_SCALE}")
                return f"{text:f}" if self.annotation else text
            case "DATE":
                return date.fromordinal(rng.randrange(1, date.max.toordinal() + 1))
            case "TIMESTAMP":
                return rng.randrange(_FIRST_NS, _LAST_US_NS) // 1_000 * 1_000
            case "UUID":
                return UUID(int=rng.getrandbits(128))
        raise AssertionError(self.code)

    def as_json(self, value: Any) -> Any:
        """Return a value as the JSON of a data change record holds it."""
        if value is None:
            return None
        if self.of is not None:
            return [self.of.as_json(one) for one in value]
        match self.code:
            case "INT64" | "ENUM" | "UUID":
                return str(value)
            case "FLOAT64" | "FLOAT32" if not math.isfinite(value):
                return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
            case "BYTES" | "PROTO":
                return base64.b64encode(value).decode()
            case "NUMERIC" if not self.annotation:
                return _decimal_text(value)
            case "DATE":
                return value.isoformat()
            case "TIMESTAMP":
                return _instant_text(value)
        return value

    def plain(self, value: Any, *, text_times: bool = False) -> Any:
        """Return a value as `plain` has it; of a stream that carries timestamps as text, or not."""
        if value is None:
            return None
        if self.of is not None:
            return tuple(self.of.plain(one, text_times=text_times) for one in value)
        if self.code == "TIMESTAMP":
            return _instant_text(value, canonical=True) if text_times else value // 1_000
        return plain(value)


def values(kind: Kind, *, ns: bool = False) -> st.SearchStrategy[Any]:
    """Strategy: values of a type, as `draw` returns them."""
    seeds = st.integers(0, 2**32 - 1)
    drawn = seeds.map(lambda seed: kind.draw(random.Random(seed), ns=ns))
    return st.sampled_from(kind.extremes) | drawn if kind.extremes else drawn


def plain(value: Any) -> Any:
    """Return what a reader got, in the form in which values are compared."""
    if type(value) in _PLAIN:
        return value
    match value:
        case float():
            return "NaN" if math.isnan(value) else repr(value)
        case Decimal():
            return f"decimal {_decimal_text(value)}"
        case datetime():
            return (value - _EPOCH) // timedelta(microseconds=1)
        case date():
            return value.toordinal() - _EPOCH_DAY
        case UUID():
            return str(value)
        case bytearray():
            return bytes(value)
        case bool():
            return f"{value}"
        case list() | tuple():
            return tuple(map(plain, value))
        case dict():
            return tuple((name, plain(one)) for name, one in value.items())
    return value


def plain_key(value: Any) -> Any:
    """Return a plain value as a key has it: 0.0 and -0.0 are one row."""
    return "0.0" if value == "-0.0" else value


def near(kind: Kind, value: Any, rng: random.Random) -> Any:
    """Return a value that differs from another one of its type by as little as may be, if it may.

    Bounds of a file that are cut or rounded do not tell the two apart.
    """
    match kind.code:
        case "TIMESTAMP":
            return max(_FIRST_NS, min(_LAST_US_NS, value + rng.choice((-1_000, 1_000))))
        case "NUMERIC" if not kind.annotation:
            other = int(Fraction(value) * 10**_SCALE) + rng.choice((-1, 1))
            return Decimal(f"{other}e-9") if abs(other) < 10**38 else value
        case "STRING":
            return f"{value.ljust(40, 'x')}{rng.choice('ab')}"
        case "BYTES":
            return value.ljust(40, b"x") + rng.choice((b"\0", b"\xff"))
        case "FLOAT64" if value:
            return math.nextafter(value, 0.0)
        case "FLOAT64" | "FLOAT32" if not value:
            return -value
        case "INT64":
            return max(0 if kind.annotation else -(2**63), value - 1)
    return kind.draw(rng)


def _decimal_text(value: Decimal) -> str:
    """Return a number without an exponent and without zeros that say nothing."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in {"-0", ""} else text


def _instant_text(ns: int, *, canonical: bool = False) -> str:
    """Return an instant as Spanner writes it, in groups of three digits; or without last zeros."""
    whole, rest = divmod(ns, 10**9)
    text = f"{_EPOCH + timedelta(seconds=whole):%H:%M:%S}"
    day = (_EPOCH + timedelta(seconds=whole)).date().isoformat()
    digits = f"{rest:09d}".rstrip("0")
    if not canonical:
        digits = digits.ljust(-(-len(digits) // 3) * 3, "0")
    return f"{day}T{text}{'.' * bool(digits)}{digits}Z"


_SCALARS = (
    Kind("INT64", "INT64", "bigint", extremes=_LONG),
    Kind("STRING", "STRING(MAX)", "character varying", extremes=_TEXTS),
    Kind("BYTES", "BYTES(MAX)", "bytea", extremes=_BYTES),
    Kind("TIMESTAMP", "TIMESTAMP", "timestamp with time zone", extremes=_TIMES),
    Kind("NUMERIC", "NUMERIC", extremes=_NUMERICS),
    Kind("NUMERIC", "", "numeric", "PG_NUMERIC", extremes=_PG_NUMERICS, is_key=False),
    Kind("DATE", "DATE", "date", extremes=_DAYS),
    Kind("BOOL", "BOOL", "boolean", extremes=(False, True)),
    Kind("FLOAT64", "FLOAT64", "double precision", extremes=_DOUBLES),
    Kind("FLOAT32", "FLOAT32", "real", extremes=_SINGLES),
    Kind("UUID", "UUID", "uuid", extremes=_UUIDS),
    Kind("ENUM", "ENUM<shop.v1.State>", extremes=(0, 1, -1, 2**31 - 1)),
    Kind("PROTO", "PROTO<shop.v1.Item>", extremes=_BYTES, is_key=False),
    Kind("JSON", "JSON", extremes=_JSON, is_key=False),
    Kind("JSON", "", "jsonb", "PG_JSONB", extremes=_JSON, is_key=False),
    Kind("INT64", "", "oid", "PG_OID", extremes=(0, 1, 2**32 - 1)),
    Kind("INTERVAL", "INTERVAL", "interval", extremes=_INTERVALS, is_key=False),
)


def _array(of: Kind) -> Kind:
    google = f"ARRAY<{of.googlesql}>" if of.googlesql else ""
    postgresql = f"{of.postgresql}[]" if of.postgresql else ""
    return Kind("ARRAY", google, postgresql, is_key=False, of=of)


KINDS = (
    *_SCALARS,
    replace(_SCALARS[1], googlesql="STRING(36)", postgresql="character varying(36)"),
    replace(_SCALARS[3], postgresql="spanner.commit_timestamp"),
    *map(_array, _SCALARS),
    *(
        replace(
            _array(kind),
            googlesql=f"{_array(kind).googlesql}(vector_length=>2)",
            postgresql=f"{_array(kind).postgresql} vector length 2",
        )
        for kind in _SCALARS
        if kind.code.startswith("FLOAT")
    ),
)
"""Every type of both dialects."""

KINDS_OF = {
    dialect: tuple(kind for kind in KINDS if getattr(kind, dialect))
    for dialect in ("googlesql", "postgresql")
}
