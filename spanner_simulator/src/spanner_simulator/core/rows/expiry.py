"""Row deletion policies: which rows are due, table by table in key order.

A row is due when its timestamp is at least so many days old; a row without one never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from spanner_simulator.core.rows.storage import KeyRange, TableRows
from spanner_simulator.core.rows.table_rules import Rules

EXPIRY_TAG: Final = "RowDeletionPolicy"
_DAY_NS: Final = 86_400 * 10**9
_EVERYTHING: Final = KeyRange(b"", None)


def due_rows(
    rules: Rules, rows: Mapping[str, TableRows], *, now_us: int
) -> Iterator[tuple[str, list[bytes]]]:
    """Tables that have due rows, with their keys."""
    for name in sorted(rules):
        table = rules[name].table
        policy = table.row_deletion
        if policy is None:
            continue
        column = table.column(policy.column).name
        limit_ns = now_us * 1000 - policy.older_than_days * _DAY_NS
        keys = [
            key
            for key, row in rows[name].scan(_EVERYTHING, None)
            if isinstance(moment := row.get(column), int) and moment <= limit_ns
        ]
        if keys:
            yield name, keys
