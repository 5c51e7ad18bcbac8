"""The figures of `tidegate-consumer status` for people: tables that fit a terminal of 80 columns.

A row is one line: what does not fit is cut.  `--json` has everything whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.commands.status import TITLES

_CUT = frozenset({"value", "slowest", "token"})
"""Columns that give way where a row is too wide; the others are cut only when that is not enough.

Tokens are longer than any terminal."""
_UTC, _US = "+00:00", "_us"


def tables_of(figures: Mapping[str, Any]) -> list[Table]:
    """Return what `status` returned: a table of figures, and one for each list that has rows."""
    table = _table("figure", "value")
    for name, value in figures.items():
        if name not in TITLES:
            table.add_row(_text(name), _text(value))
    return [table, *(_listed(name, figures[name]) for name in TITLES if figures[name])]


def _listed(name: str, rows: list[Mapping[str, Any]]) -> Table:
    readable = [_with_times(row) for row in rows]
    listed = _table(*readable[0], title=TITLES[name])
    for row in readable:
        listed.add_row(*(_text(value) for value in row.values()))
    return listed


def _with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with times, to the second, in the place of microseconds."""
    return {
        name.removesuffix(_US): _time(value) if name.endswith(_US) else value
        for name, value in row.items()
    }


def _time(us: int) -> str:
    return datetime.fromtimestamp(us // US_PER_SECOND, UTC).isoformat()


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title)
    for name in columns:
        table.add_column(name, no_wrap=name not in _CUT, overflow="ellipsis")
    return table


def _text(value: Any) -> Text:
    """Return text that rich takes as it is: a token may hold its markup."""
    return Text(_plain(value), no_wrap=True, overflow="ellipsis")


def _plain(value: Any) -> str:
    match value:
        case None | "":
            return "-"
        case float():
            return f"{value:.1f}"
        case str() if value.endswith(_UTC):
            return f"{value.removesuffix(_UTC)}Z"
        case dict():
            return "\n".join(f"{name}: {_plain(one)}" for name, one in value.items()) or "none"
        case list():
            return "\n".join(map(_plain, value)) or "none"
        case _:
            return str(value)
