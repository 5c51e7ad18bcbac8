"""Reads of a table with any number of rows, as the service answers them, made while they are read.

Keys are the numbers from 0 on, in texts of one length: so a row is the bytes of another one with
its own key, and the server is faster than any reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud.spanner_v1.types import PartialResultSet

from benchmarks.producer.responses import TABLE, value

_FIRST_KEY = 1_000_000_000
"""So that all keys have ten digits."""
_DIGITS = 10
_ROWS_IN_MESSAGE = 4_000
_KINDS = 16
"""So many different rows, beside their keys."""


def key_text(number: int) -> str:
    """Return the key of a row as Spanner's API has it."""
    return str(_FIRST_KEY + number)


def table_responses(request: Any, rows: int) -> Iterator[bytes]:
    """Yield the messages of a table read of so many rows: the columns and keys that it asks for."""
    first, end = _range(request.key_set, rows)
    key = TABLE.key_columns[0].name
    if request.columns[0] != key:
        raise ValueError(f"the first column of a read is {request.columns[0]}, not {key}")
    cut = [_row(request.columns, kind) for kind in range(_KINDS)]
    for start in range(first, end, _ROWS_IN_MESSAGE):
        yield b"".join(
            b"%b%d%b" % (cut[number % _KINDS][0], _FIRST_KEY + number, cut[number % _KINDS][1])
            for number in range(start, min(end, start + _ROWS_IN_MESSAGE))
        )


def _range(keys: Any, rows: int) -> tuple[int, int]:
    """Return the number of the first row of a key set, and of the row behind its last."""
    if keys.all_ or not keys.ranges:
        return 0, rows
    (one,) = keys.ranges
    after, through = one.start_open.values, one.end_closed.values
    first = int(after[0].string_value) - _FIRST_KEY + 1 if after else 0
    end = int(through[0].string_value) - _FIRST_KEY + 1 if through else rows
    return first, end


def _row(columns: Sequence[str], kind: int) -> tuple[bytes, bytes]:
    """Return a row's bytes before and behind its key."""
    texts = {
        "Owner": f"owner {kind:02d} of an account",
        "Balance": f"{kind * 1_000 + 7}.25",
        "Branch": f"branch {kind % 5}",
        "Opened": f"2024-05-{kind + 1:02d}",
        "Active": kind % 3 == 0,
        "Score": str(kind * 997),
        "Updated": f"2025-11-{kind + 1:02d}T10:20:30.{kind:06d}Z",
    }
    marker = "k" * _DIGITS
    values = [value(marker), *(value(texts[name]) for name in columns[1:])]
    message = bytes(PartialResultSet.pb()(values=values).SerializeToString())
    before, _, behind = message.partition(marker.encode())
    return before, behind
