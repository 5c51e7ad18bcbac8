"""`tidegate-local show`: a mirror or changelog in Delta; needs no running consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake.exceptions import TableNotFoundError
from rich.table import Table

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.delta import read_delta
from tidegate.schemas.errors import ConfigError

_POLL_S = 0.3
_SAY_AFTER_S = 2.0
_KEYS_SHOWN = 5


def mirror_rows(output: Path, table: str) -> list[dict[str, Any]]:
    """Return a mirror's rows.

    Raises ConfigError if the table does not exist yet, or if its rows are not in its files alone.
    """
    return _read(output / "mirror" / table)


def changelog_rows(output: Path, table: str) -> list[dict[str, Any]]:
    """Return a changelog's rows in commit order, without Spanner's coordinates."""
    rows = sorted(
        _read(output / "changelog" / table), key=lambda row: (row["release"], row["ordinal"])
    )
    shown = ("release", "ordinal", "commit_timestamp", "mod_type", "key", "new_values")
    return [{name: row[name] for name in shown} for row in rows]


def wait_for_key(
    read: Callable[[], list[dict[str, Any]]],
    key: str,
    *,
    deadline_s: float,
    say: Callable[[str], None] = lambda _: None,
    say_after_s: float = _SAY_AFTER_S,
) -> list[dict[str, Any]]:
    """Return the rows with `key` in their key or first column, as soon as one exists.

    After `say_after_s` seconds, `say` is called once with the reason for waiting.  Raises
    PartFailedError after `deadline_s` seconds.
    """
    begin, is_said = time.monotonic(), False
    while True:
        rows = read()
        matching = [row for row in rows if key in _keys(row)]
        if matching:
            return matching
        seconds = time.monotonic() - begin
        if seconds > deadline_s:
            message = f"no row with key {key!r} arrived within {deadline_s:.0f} s"
            keys = [", ".join(_keys(row)) for row in rows[-_KEYS_SHOWN:]]
            raise PartFailedError(
                message,
                hint=(
                    f"There are {len(rows)} rows, the last ones with the keys {keys}. Check the "
                    "key, and whether `tidegate-local up` still runs"
                ),
            )
        if seconds >= say_after_s and not is_said:
            is_said = True
            say(f"waiting for key {key!r}, for {deadline_s:.0f} s at most: {len(rows)} rows so far")
        time.sleep(_POLL_S)


def rows_table(rows: list[dict[str, Any]], *, title: str, rows_max: int) -> Table:
    """Return the newest rows as a table."""
    cut = f", {rows_max} of them here" if len(rows) > rows_max else ""
    table = Table(
        title=f"{title}: {len(rows)} rows{cut}", title_justify="left", header_style="bold"
    )
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows[-rows_max:]:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_delta(path).to_pylist()
    except TableNotFoundError as error:
        tables = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise ConfigError(
            f"no {path.parent.name} of table {path.name!r} in {path.parent.parent}",
            hint=f"Tables: {', '.join(tables) or 'none yet'}",
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"this table cannot be shown: {error}",
            hint="Read it with Spark, or with another program that knows all of Delta",
        ) from error
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
