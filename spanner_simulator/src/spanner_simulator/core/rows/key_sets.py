"""Key sets: the rows of a read or a deletion, and their bounds in the keyspace.

They hold key values in plain form, as in the API; a table (or an index) gives them types.  A bound
may name only the first parts of a key.
"""

from __future__ import annotations

from dataclasses import dataclass

from spanner_simulator.core.key_encoding import successor
from spanner_simulator.core.plain_forms import proto_text
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import Plain, Value, decode
from spanner_simulator.errors import SpannerError, failed_precondition


@dataclass(frozen=True, slots=True)
class KeyBound:
    """One end of a span: the first key parts, and whether rows with these parts are included."""

    values: list[Plain]
    inclusive: bool


@dataclass(frozen=True, slots=True)
class KeySpan:
    """A range of primary keys, in key order."""

    start: KeyBound
    end: KeyBound


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys, ranges or everything, in plain form."""

    keys: tuple[list[Plain], ...] = ()
    spans: tuple[KeySpan, ...] = ()
    everything: bool = False


def decode_key(table: Table, plain: list[Plain]) -> list[Value]:
    """Key values in plain form to values; may be fewer than the key's parts."""
    if len(plain) > len(table.key):
        raise _wrong_count(table, len(table.key), plain)
    return [
        decode(table.type_of[name], value, where=f"{table.name}.{name}")
        for name, value in zip(table.key_names, plain, strict=False)
    ]


def whole_key(table: Table, plain: list[Plain]) -> bytes:
    """The encoded key of all key values in plain form; FAILED_PRECONDITION if some are missing."""
    if len(plain) != len(table.key):
        raise _wrong_count(table, len(table.key), plain)
    return table.encoded_key_of(decode_key(table, plain))


def prefix_range(table: Table, plain: list[Plain], parts: int) -> KeyRange:
    """The rows whose key begins with exactly `parts` values, as for a key of an index."""
    if len(plain) != parts:
        raise _wrong_count(table, parts, plain)
    prefix = table.encoded_key_of(decode_key(table, plain))
    return KeyRange(prefix, successor(prefix))


def key_range(table: Table, span: KeySpan | None) -> KeyRange:
    """Encoded bounds of a span; None means the whole table."""
    if span is None:
        return KeyRange(table.prefix, successor(table.prefix))
    low = table.encoded_key_of(decode_key(table, span.start.values))
    high = table.encoded_key_of(decode_key(table, span.end.values))
    low_bound = low if span.start.inclusive else successor(low)
    high_bound = successor(high) if span.end.inclusive else high
    return KeyRange(low_bound if low_bound is not None else high, high_bound)


def _wrong_count(table: Table, expected: int, plain: list[Plain]) -> SpannerError:
    supplied = "".join(f" values {{ {proto_text(value).strip()} }}" for value in plain)
    return failed_precondition(
        f"Wrong number of key parts for {table.name}. Expected {expected} key parts, found "
        f"{len(plain)} key parts. Supplied key:{supplied}",
    )
