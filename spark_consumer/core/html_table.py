"""Figures as a table in HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def html_table(head: Sequence[str], rows: Iterable[Iterable[Any]], *, title: str = "") -> str:
    """Return a table; every text in it is escaped, and what is None is a dash."""
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return (
        f"<table>{caption}<thead>{_row(head, 'th')}</thead>"
        f"<tbody>{''.join(_row(row, 'td') for row in rows)}</tbody></table>"
    )


def _row(cells: Iterable[Any], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict):
        return _lines(value)
    if isinstance(value, list | tuple):
        return "<br>".join(_text(one) for one in value) or "none"
    return escape(str(value))


def _lines(values: Mapping[str, Any]) -> str:
    return "<br>".join(f"{escape(str(key))}: {_text(one)}" for key, one in values.items()) or "none"
