"""`tidegate-consumer tail`: print changes in commit order, as they are released; no Spark.

It looks for the manifest of the next release and reads its changes from the changelogs.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.text import Text

from tidegate.program.extras import is_installed
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.sinks.delta.direct.place import OnlySpark, find_place
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay, release_rows
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    first_manifest,
    newest_manifest,
    read_manifest,
)

_LOOK_EVERY_S = 0.5
_BYTES_MAX = 256 * 1024**2
_FOREVER_US = 2**62
_SHOWN = (
    "release",
    "ordinal",
    "table",
    "commit_timestamp",
    "server_transaction_id",
    "record_sequence",
    "mod_number",
    "mod_type",
)


def tail(
    output: str,
    *,
    releases: int = 0,
    tables: Collection[str] = (),
    follow: bool = True,
    tell: Callable[[str], None] = lambda _line: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Mapping[str, Any]]:
    """Yield the changes of the last `releases` releases; with `follow`, then those of new releases.

    Each change is a mapping of text, numbers and lists, ready for JSON.  `tell` is called with a
    line for a release that is left out.  Raises ConfigError if the output is not on this machine,
    has no release or no such table, or if delta-rs is not installed.
    """
    direct, files = _direct(output), _folder(output)
    newest = newest_manifest(files, watermark_us=_FOREVER_US)
    if newest is None:
        raise ConfigError(
            "nothing has been released to this output",
            hint="Check --output; its _releases folder is empty",
            output=output,
        )
    if unknown := sorted(set(tables) - newest.tables.keys()):
        raise ConfigError(
            "the output has no such table",
            hint=f"Known tables: {', '.join(sorted(newest.tables)) or 'none'}",
            tables=unknown,
        )
    number = max(newest.release + 1 - releases, first_manifest(files))
    while True:
        manifest = read_manifest(files, number)
        if manifest is not None:
            yield from _changes(direct, manifest, tables, tell)
            number += 1
        elif number < (kept := first_manifest(files)):
            tell(f"the manifests of releases {number} to {kept - 1} are no longer kept")
            number = kept
        elif not follow:
            return
        else:
            sleep(_LOOK_EVERY_S)


def as_json(change: Mapping[str, Any]) -> str:
    """Return a change as one line of JSON."""
    return json.dumps(change, ensure_ascii=False)


def as_text(change: Mapping[str, Any]) -> str:
    """Return a change as one line for people: time, table, kind, key, the other new values."""
    key, captured = change["key"], change["new_values"] or {}
    values = {name: value for name, value in captured.items() if name not in key}
    parts = [change["commit_timestamp"], change["table"], change["mod_type"]]
    parts += [json.dumps(part, ensure_ascii=False) for part in (key, values) if part]
    return "  ".join(parts)


def fitted(line: str, width: int) -> str:
    """Return a line cut to the cells of a terminal; 0: the line whole."""
    text = Text(line)
    if width > 0:
        text.truncate(width, overflow="ellipsis")
    return text.plain


def _changes(
    direct: DirectWay,
    manifest: Manifest,
    tables: Collection[str],
    tell: Callable[[str], None],
) -> Iterator[Mapping[str, Any]]:
    rows = release_rows(direct, manifest, tables)
    if rows is None:
        text = f"release {manifest.release} with {manifest.rows} changes"
        tell(f"{text} is left out: only Spark can read it")
        return
    for row in rows:
        yield {
            **{name: _plain(row[name]) for name in _SHOWN},
            "key": _plain(row["key"]),
            "new_values": _captured(row["new_values"], row["new_columns"]),
            "old_values": _captured(row["old_values"], row["old_columns"]),
        }


def _captured(values: Mapping[str, Any] | None, columns: Collection[str] | None) -> Any:
    """Return the captured columns: null in another column has no meaning."""
    if values is None:
        return None
    return {
        name: _plain(value) for name, value in values.items() if columns is None or name in columns
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, with nothing rounded."""
    match value:
        case datetime():
            # strftime writes the year 1 as "1".
            utc = value.astimezone(UTC).replace(tzinfo=None)
            return f"{utc.isoformat(timespec='microseconds')}Z"
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _plain(field) for name, field in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def _direct(output: str) -> DirectWay:
    missing = [name for name in ("deltalake", "pyarrow") if not is_installed(name)]
    if missing:
        raise ConfigError(
            f"tail needs {', '.join(missing)}", hint='Type: pip install "tidegate[local]"'
        )
    try:
        return DirectWay(
            find_place(output if ":" in output else str(Path(output).resolve())),
            bytes_max=_BYTES_MAX,
        )
    except OnlySpark as error:
        raise ConfigError(
            "tail reads outputs on this machine only",
            hint="Read the changelog tables with Spark",
            output=output,
        ) from error


def _folder(output: str) -> LocalFolder:
    return LocalFolder(Path(output.removeprefix("file:")))
