"""`tidegate-local show`: a mirror or changelog as it is in Delta now; needs no running consumer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import TableNotFoundError
from rich.table import Table

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.delta import read_delta
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["changelog_rows", "mirror_rows", "rows_table", "wait_for_key"]

_POLL_S = 0.3


def mirror_rows(output: Path, table: str) -> list[dict[str, Any]]:
    """Return a mirror's rows; raises ConfigError if the table does not exist yet."""
    return _read(output / "mirror" / table)


def changelog_rows(output: Path, table: str) -> list[dict[str, Any]]:
    """Return a changelog's rows in commit order, without Spanner's coordinates."""
    rows = sorted(
        _read(output / "changelog" / table), key=lambda row: (row["release"], row["ordinal"])
    )
    shown = ("release", "ordinal", "commit_timestamp", "mod_type", "key", "new_values")
    return [{name: row[name] for name in shown} for row in rows]


def wait_for_key(
    read: Callable[[], list[dict[str, Any]]], key: str, *, deadline_s: float
) -> list[dict[str, Any]]:
    """Return the rows with `key` in their key or first column, as soon as one exists.

    Raises PartFailedError after `deadline_s` seconds.
    """
    end = time.monotonic() + deadline_s
    while True:
        found = [row for row in read() if key in _keys(row)]
        if found:
            return found
        if time.monotonic() > end:
            message = f"no row with key {key!r} arrived within {deadline_s:.0f} s"
            raise PartFailedError(message)
        time.sleep(_POLL_S)


def rows_table(rows: list[dict[str, Any]], *, title: str, rows_max: int) -> Table:
    """Return the newest rows as a table."""
    table = Table(title=f"{title}: {len(rows)} rows", title_justify="left", header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows[-rows_max:]:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_delta(path).to_pylist()
    except TableNotFoundError as error:
        known = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        message = f"no {path.parent.name} of table {path.name!r} in {path.parent.parent}"
        raise ConfigError(message, hint=f"Tables: {', '.join(known) or 'none yet'}") from error
    return rows


def _keys(row: Mapping[str, Any]) -> list[str]:
    if isinstance(row.get("key"), dict):
        return [str(value) for value in row["key"].values()]
    return [str(next(iter(row.values())))]


def _text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case dict():
            return ", ".join(f"{name}={_text(item)}" for name, item in value.items())
        case _:
            return str(value)
