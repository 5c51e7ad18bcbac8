"""The stream partitions of a backfill, and their tokens.

A backfill is a part of the stream's lineage, so that all that holds for stream partitions holds for
it: they are owned through slots, published exactly once, proved by completion markers, and the
watermark waits for them.  With n read partitions:

    initial query ─► read 0 … read n-1          each publishes the rows of one key range
    read k        ─► done k                     a query that ends at once
    done 0 … n-1  ─► rest                       the change stream's own initial query
    rest          ─► the change stream's stream partitions

A child starts when all of its parents are finished, so no change of the stream is published before
every row.  `done k` stands between so that no read partition has to know the others: their names
follow from their number, and those of the read partitions hold keys.

Everything that a worker needs is in the token.  Spanner's own tokens never begin as these do.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.schemas.errors import SchemaError

Key: TypeAlias = tuple[str | float | bool | None, ...]
"""A primary key's values as Spanner's API has them, in key order."""

PREFIX = "tidegate-backfill/"
"""Begins every token that is not Spanner's."""
REST = f"{PREFIX}rest"
"""Token of the stream partition that stands for the change stream, once all rows are published."""

_DONE = re.compile(rf"{PREFIX}done/([0-9]+)/([0-9]+)")
_READ = re.compile(rf"{PREFIX}read/([0-9]+)/([0-9]+)/([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """A range of a table's keys, with `rows` rows at the backfill's time."""

    table: str
    number: int
    """From 0 over all tables."""
    of: int
    """How many read partitions the backfill has."""
    rows: int
    after: Key | None
    """The last key before the range; None at the table's beginning."""
    through: Key | None
    """The last key of the range; None at the table's end."""


def is_of_backfill(token: str) -> bool:
    """Whether a token is one of these."""
    return token.startswith(PREFIX)


def read_token(one: ReadPartition) -> str:
    """Return the token of a read partition."""
    content = json.dumps([one.table, one.rows, one.after, one.through], separators=(",", ":"))
    text = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    return f"{PREFIX}read/{one.number}/{one.of}/{text}"


def reading_of(token: str) -> ReadPartition | None:
    """Return the read partition of a token; None for any other token.

    Raises SchemaError for a damaged one.
    """
    found = _READ.fullmatch(token)
    if found is None:
        return None
    try:
        content = base64.urlsafe_b64decode(found[3] + "=" * (-len(found[3]) % 4))
        table, rows, after, through = json.loads(content)
    except (ValueError, binascii.Error) as error:
        raise SchemaError(
            "the token of a read partition cannot be read", token=token, cause=str(error)
        ) from error
    return ReadPartition(
        table=table,
        number=int(found[1]),
        of=int(found[2]),
        rows=rows,
        after=None if after is None else tuple(after),
        through=None if through is None else tuple(through),
    )


def done_token(one: ReadPartition) -> str:
    """Return the token that a read partition leads to."""
    return done_tokens(one.of)[one.number]


def done_tokens(of: int) -> tuple[str, ...]:
    """Return the tokens that lead to `REST`."""
    return tuple(f"{PREFIX}done/{number}/{of}" for number in range(of))


def parents_of_rest(token: str) -> tuple[str, ...] | None:
    """Return the parents of `REST` if a token is one of them, otherwise None."""
    found = _DONE.fullmatch(token)
    return None if found is None else done_tokens(int(found[2]))
