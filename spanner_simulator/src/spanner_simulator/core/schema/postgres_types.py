"""Column types of PostgreSQL: names to `ValueType`, and the texts for what Spanner has not."""

from __future__ import annotations

from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError

_TYPES = {
    "BOOL": ValueType("BOOL"),
    "BOOLEAN": ValueType("BOOL"),
    "BIGINT": ValueType("INT64"),
    "INT8": ValueType("INT64"),
    "INT": ValueType("INT64"),
    "INTEGER": ValueType("INT64"),
    "REAL": ValueType("FLOAT32"),
    "FLOAT4": ValueType("FLOAT32"),
    "FLOAT8": ValueType("FLOAT64"),
    "FLOAT": ValueType("FLOAT64"),
    "NUMERIC": ValueType("NUMERIC", annotation="PG_NUMERIC"),
    "DECIMAL": ValueType("NUMERIC", annotation="PG_NUMERIC"),
    "DEC": ValueType("NUMERIC", annotation="PG_NUMERIC"),
    "VARCHAR": ValueType("STRING"),
    "TEXT": ValueType("STRING"),
    "BYTEA": ValueType("BYTES"),
    "DATE": ValueType("DATE"),
    "TIMESTAMPTZ": ValueType("TIMESTAMP"),
    "JSONB": ValueType("JSON", annotation="PG_JSONB"),
    "UUID": ValueType("UUID"),
    "INTERVAL": ValueType("INTERVAL"),
}
# Types that PostgreSQL has and Spanner has not, some under another name.
_REFUSED = frozenset(
    (
        "bit", "varbit", "box", "cidr", "circle", "inet", "line", "lseg", "macaddr", "macaddr8",
        "money", "path", "pg_lsn", "point", "polygon", "time", "timetz", "timestamp", "tsquery",
        "tsvector", "xml", "name", "oid", "regclass", "xid", "void", "record", "int2vector", "json",
        "int2", "int4", "bpchar", "serial", "serial4", "serial8", "bigserial", "smallserial",
    )
)  # fmt: skip
_ALIASES = {"smallint": "int2", "char": "bpchar", "character": "bpchar", "nchar": "bpchar"}
_INTEGERS = ("int2", "int4", "serial4", "serial8", "bigserial", "smallserial")
_INSTEAD = {
    **dict.fromkeys(_INTEGERS, "bigint or int8"),
    **dict.fromkeys(("cidr", "inet", "macaddr", "xml"), "text"),
    "json": "jsonb",
    "money": "numeric or decimal",
    "serial": "bigint, int8",
}
_LENGTH_MAX = 2_621_440


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def _unknown(name: str) -> SpannerError:
    shown = _ALIASES.get(name, name)
    if shown not in _REFUSED:
        return _refused(f"Type <{shown}> does not exist.")
    instead = f"; use {_INSTEAD[shown]} instead" if shown in _INSTEAD else ""
    return _refused(f"Type <{shown}> is not supported{instead}.")


def column_type(words: DdlWords) -> tuple[ValueType, bool]:
    """A type, and whether it is spanner.commit_timestamp."""
    if words.accept("SPANNER"):
        words.expect_symbol(".")
        words.expect("COMMIT_TIMESTAMP")
        return ValueType("TIMESTAMP"), True
    if words.accept("PG_CATALOG"):
        words.expect_symbol(".")
    scalar = _scalar(words)
    dimensions = 0
    while words.accept_symbol("["):
        if words.peek().kind == "number":
            words.take()
        words.expect_symbol("]")
        dimensions += 1
    if words.accept("ARRAY"):
        dimensions += 1
    if dimensions > 1:
        raise _refused("Multi-dimensional arrays are not supported.")
    return (ValueType("ARRAY", scalar) if dimensions else scalar), False


def _scalar(words: DdlWords) -> ValueType:
    word = words.peek()
    if word.kind not in ("name", "quoted_name"):
        words.encountered("type")
    name = words.take().text.upper()
    if name == "DOUBLE" and words.accept("PRECISION"):
        name = "FLOAT8"
    elif name == "CHARACTER" and words.accept("VARYING"):
        name = "VARCHAR"
    elif name in ("TIMESTAMP", "TIME"):
        if words.accept("WITH", "TIME", "ZONE"):
            name += "TZ"
        elif words.accept("WITHOUT"):
            words.expect("TIME", "ZONE")
    found = _TYPES.get(name)
    if found is None:
        raise _unknown(name.lower())
    if not words.accept_symbol("("):
        return found
    if name != "VARCHAR":
        raise _refused(f"Type modifier is not supported for type <{name.lower()}>.")
    length = words.integer()
    words.expect_symbol(")")
    if length > _LENGTH_MAX:
        raise _refused(f"Maximum length for <varchar> fields is {_LENGTH_MAX}.")
    return ValueType("STRING", None, length)
