"""The stream partitions of a backfill, their tokens, and the key ranges that they are cut from.

A backfill is a part of the stream's lineage, so that all rules for stream partitions apply to it:
they are owned through slots, published exactly once, proved by completion markers, and the
watermark waits for them.  With n read partitions:

    initial query ─► read 0 … read n-1          each publishes the rows of one key range
    read k        ─► done k                     a query that ends at once
    done 0 … n-1  ─► rest                       the change stream's initial query
    rest          ─► the change stream's stream partitions

A child starts when all of its parents are finished, so no change of the stream is published before
every row.  `done k` is between them so that no read partition has to know the others: the names of
`done` partitions follow from their number, while those of read partitions contain keys.

Everything that a worker needs is in the token.  Spanner's tokens never have this prefix.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.schemas.errors import SchemaError

Key: TypeAlias = tuple[str | float | bool | None, ...]
"""A primary key's values as Spanner's API has them, in key order."""

PREFIX = "tidegate-backfill/"
"""Prefix of every token that is not Spanner's."""
REST = f"{PREFIX}rest"
"""Token of the initial query's successor, once all rows are published."""
READ_PARTITIONS_MAX = 256
"""Number of read partitions of one backfill, unless it has more tables.

Each of them names as many tokens at its end.
"""

_KEY_PARTS = (str, int, float, type(None))
_ROWS_MIN = 10_000
"""Least number of rows of a key range, except the last one."""
_DONE = re.compile(rf"{PREFIX}done/([0-9]+)/([0-9]+)")
_READ = re.compile(rf"{PREFIX}read/([0-9]+)/([0-9]+)/([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """A range of a table's keys, with `rows` rows at the backfill's time."""

    table: str
    number: int
    """From 0 over all tables."""
    of: int
    """Number of read partitions of the backfill."""
    rows: int
    after: Key | None
    """The last key before the range; None at the table's beginning."""
    through: Key | None
    """The last key of the range; None at the table's end."""


def is_of_backfill(token: str) -> bool:
    """Whether a token belongs to a backfill."""
    return token.startswith(PREFIX)


def read_token(part: ReadPartition) -> str:
    """Return the token of a read partition."""
    content = json.dumps([part.table, part.rows, part.after, part.through], separators=(",", ":"))
    text = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    return f"{PREFIX}read/{part.number}/{part.of}/{text}"


def reading_of(token: str) -> ReadPartition | None:
    """Parse the token of a read partition; None for any other token.

    Raises SchemaError for a damaged one.
    """
    match = _READ.fullmatch(token)
    if match is None:
        return None
    try:
        table, rows, after, through = decoded(match[3])
        number, of = int(match[1]), int(match[2])
        require(isinstance(table, str) and table, table)
        require(is_number(rows) and rows > 0, rows)
        require(number < of, number)
        return ReadPartition(table, number, of, rows, key_of(after), key_of(through))
    except (ValueError, TypeError) as error:
        raise SchemaError(
            "the token of a read partition cannot be read", token=token, cause=str(error)
        ) from error


def decoded(text: str) -> Any:
    """Return the content of a token's last part; raises ValueError if it is damaged."""
    try:
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except RecursionError as error:
        raise ValueError("too many brackets") from error


def require(condition: object, value: object) -> None:
    """Raise ValueError for a value of a token of which the condition is not met."""
    if not condition:
        raise ValueError(f"unexpected value {value!r}")


def is_number(value: object) -> bool:
    """Whether a value is a whole number, at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def key_of(content: object) -> Key | None:
    """Return the key in a token; raises ValueError for anything else."""
    if content is None:
        return None
    parts = content if isinstance(content, list) else [content]
    is_key = parts is content and all(isinstance(part, _KEY_PARTS) for part in parts)
    require(is_key, content)
    return tuple(parts)


def done_token(part: ReadPartition) -> str:
    """Return the token that follows a read partition."""
    return done_tokens(part.of)[part.number]


def done_tokens(partitions: int) -> tuple[str, ...]:
    """Return the tokens before `REST`."""
    return tuple(f"{PREFIX}done/{number}/{partitions}" for number in range(partitions))


def parents_of_rest(token: str) -> tuple[str, ...] | None:
    """Return the parents of `REST` if a token is one of them, otherwise None."""
    match = _DONE.fullmatch(token)
    return None if match is None else done_tokens(int(match[2]))


class KeyRanges:
    """The key ranges of one table, of similar numbers of rows; keys are added in order.

    Ranges become twice as large whenever there are too many, so memory is bounded.
    """

    def __init__(self, *, ranges_max: int = READ_PARTITIONS_MAX, rows_min: int = _ROWS_MIN) -> None:
        """Start without rows."""
        self._ranges_max = ranges_max
        self._rows_in_each = rows_min
        self._ends: list[Key] = []
        self.rows = 0

    def rows_to_end(self) -> int:
        """Return the number of keys up to the next one that ends a range."""
        return self._rows_in_each - self.rows % self._rows_in_each

    def pass_over(self, rows: int) -> None:
        """Count keys that do not end a range: fewer than `rows_to_end`."""
        self.rows += rows

    def end_at(self, key: Key) -> None:
        """Count the key that ends a range."""
        self.rows += 1
        self._ends.append(key)
        if len(self._ends) > self._ranges_max:
            self._ends = self._ends[1::2]
            self._rows_in_each *= 2

    @property
    def bounds(self) -> list[tuple[Key | None, Key | None, int]]:
        """(last key before, last key, rows) of each range, in their order; empty without a row."""
        ends, left = self._ends, self.rows - len(self._ends) * self._rows_in_each
        if ends and not left:
            ends, left = ends[:-1], self._rows_in_each
        if not left:
            return []
        starts: Sequence[Key | None] = [None, *ends]
        counts = [*([self._rows_in_each] * len(ends)), left]
        return list(zip(starts, [*ends, None], counts, strict=True))


def read_partitions(tables: Iterable[tuple[str, KeyRanges]]) -> list[ReadPartition]:
    """Return the read partitions of a backfill, numbered over all tables."""
    parts = [(table, *bounds) for table, ranges in tables for bounds in ranges.bounds]
    return [
        ReadPartition(table, number, len(parts), rows, after, through)
        for number, (table, after, through, rows) in enumerate(parts)
    ]
