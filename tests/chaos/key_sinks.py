"""The tables by key: each change once and in the order of its key, and the newest row of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_OF_KEYS = ("row_state", "order_key", "column_updates")


def in_order_of_batches(files: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the rows of a table's files as they were appended; `files` are in the order of names.

    Names begin with the number of the slice, so they order the files of one batch.
    """
    batches = sorted((rows for rows in files if rows), key=lambda rows: rows[0]["batch"])
    return [row for rows in batches for row in rows]


def compare_changelog_by_key(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], expected: Collection[bytes]
) -> list[str]:
    """Return changes that are missing, there twice, invented, or behind a newer one of their key.

    `tables` has each table's rows in the order in which they were appended; `expected` are the
    order keys of all changes.
    """
    counts = Counter(row["order_key"] for rows in tables.values() for row in rows)
    faults = [f"lacks {one.hex()}" for one in sorted(set(expected) - set(counts))]
    faults += [f"has {one.hex()}, which nobody made" for one in sorted(set(counts) - set(expected))]
    faults += [f"has {one.hex()} {count} times" for one, count in counts.items() if count > 1]
    for table, rows in tables.items():
        newest: dict[str, bytes] = {}
        for row in rows:
            key = repr(row["key"])
            if newest.get(key, b"") > row["order_key"]:
                faults.append(f"{table}: {row['order_key'].hex()} of {key} is behind a newer one")
            newest[key] = row["order_key"]
    return faults


def compare_mirror_by_key(
    found: Sequence[Mapping[str, Any]],
    mirror: Sequence[Mapping[str, Any]],
    *,
    table: str,
    key: Sequence[str],
) -> list[str]:
    """Return rows that the mirror has not, or has with other values, and keys that are there twice.

    Both are of the same moment, at which no change waits for the watermark.
    """
    counts = Counter(tuple(row[name] for name in key) for row in found)
    faults = [f"{table}: has {one} {count} times" for one, count in counts.items() if count > 1]
    alive = [
        {name: value for name, value in row.items() if name not in _OF_KEYS}
        for row in found
        if row["row_state"] != "deleted"
    ]
    unlike = Counter(map(_text, alive))
    unlike.subtract(map(_text, mirror))
    faults += [f"{table}: has {one}, unlike the mirror" for one, n in unlike.items() if n > 0]
    faults += [f"{table}: lacks {one} of the mirror" for one, n in unlike.items() if n < 0]
    return faults


def _text(row: Mapping[str, Any]) -> str:
    return repr(sorted(row.items()))
