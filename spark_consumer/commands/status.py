"""`tidegate-consumer status`: how far the gate has come, read from a checkpoint without Spark.

Figures of the last releases are in the output's manifests, if that is on this machine too.  A row
of a table is one line of a terminal of 80 columns, and cut where it does not fit; `--json` has all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from tidegate.lineage.frontier import Frontier
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.change_schema import excludes, unwatched_columns
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339
from tidegate.schemas.topics import TEMPLATE_DEFAULT, TEMPLATE_SETTING, TopicNames
from tidegate.spark_consumer.checkpoint.gate_files import complete_from_us, newest_state
from tidegate.spark_consumer.checkpoint.json_files import JsonFiles, LocalFolder, local_path
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.file_names import QUERY_FILE, frontier_file, schema_file
from tidegate.spark_consumer.core.part_log import FrontierLog
from tidegate.spark_consumer.core.proof import html_table
from tidegate.spark_consumer.sinks.manifest import read_manifest

RELEASES_SHOWN = 10
"""The number of newest releases that are shown."""

TITLES = {
    "slots": "slots, the slowest first",
    "gaps": "accepted gaps",
    "last_releases": "last releases",
}
"""The figures that are shown as separate tables."""


class Figures(dict[str, Any]):
    """The figures of a checkpoint by name: a dict that a notebook shows as tables."""

    def _repr_html_(self) -> str:
        """Return the figures as tables in HTML, as IPython asks for it."""
        figures = ((name, value) for name, value in self.items() if name not in TITLES)
        tables = [html_table(("figure", "value"), figures)]
        for name, title in TITLES.items():
            rows = self.get(name)
            if rows:
                values = (row.values() for row in rows)
                tables.append(html_table(tuple(rows[0]), values, title=title))
        return "".join(tables)


def status(
    checkpoint: str | os.PathLike[str], *, now_s: Callable[[], float] = time.time
) -> Figures:
    """Return the figures of a checkpoint's newest state, ready for JSON.

    `lag_s` is the seconds from a watermark to now.  `slots` are the stream's, the slot with the
    largest lag first, each with its slowest stream partition and the worker that wrote the slot's
    newest heartbeat.  `last_releases` is None if the output is not on this machine.

    Raises ConfigError for a checkpoint that is not on this machine, cannot be read or is empty.
    """
    address = os.fspath(checkpoint)
    files = _folder(address)
    return read_status(files, _local_output, checkpoint=address, now_s=now_s)


def read_status(
    files: JsonFiles,
    output_of: Callable[[str | None], JsonFiles | None],
    *,
    checkpoint: str,
    now_s: Callable[[], float] = time.time,
) -> Figures:
    """Return the figures of a gate's folder, wherever it is.

    `output_of` opens the output, from its address; where it returns None, `last_releases` is None.
    Raises ConfigError, which names `checkpoint`, if there is no state or if it cannot be read.
    """
    state = _newest_state(files, checkpoint)
    query, now_us = files.read_json(QUERY_FILE) or {}, round(now_s() * US_PER_SECOND)
    template, output = query.get(TEMPLATE_SETTING, TEMPLATE_DEFAULT), output_of(query.get("output"))
    state, frontier = _with_frontier(files, checkpoint, template, state)
    return Figures(
        {
            **_figures(state, now_us=now_us),
            "topic_template": template,
            "complete_from_us": complete_from_us(files),
            "left_out": _left_out(files, state),
            "output": query.get("output"),
            "slots": [] if frontier is None else _slots(frontier, now_us=now_us),
            "last_releases": None if output is None else _last_releases(output, state),
        }
    )


def _with_frontier(
    files: JsonFiles, checkpoint: str, template: str, state: State
) -> tuple[State, Frontier | None]:
    """Return a state and its frontier; the frontier is None if it cannot be read.

    A run may have stored the next states in the meantime, and deleted files that they do not need:
    then the newest state is read again.
    """
    tried: int | None = None
    while True:
        frontier = _frontier(files, state, template)
        if frontier is not None or state.batch == tried:
            return state, frontier
        tried, state = state.batch, _newest_state(files, checkpoint)


def _frontier(files: JsonFiles, state: State, template: str) -> Frontier | None:
    name = state.frontier
    index = None if name is None else files.read_json(frontier_file(name))
    if name is None or index is None:
        return None
    subscription = Subscription(TopicNames(state.prefix, template))
    log = FrontierLog.restore(name, index, files.read_json, subscription)
    return None if log is None else log.frontier


def _slots(frontier: Frontier, *, now_us: int) -> list[Mapping[str, Any]]:
    return [
        {
            "slot": slot,
            "worker": frontier.workers.get(slot),
            "slowest": slowest.token,
            "watermark": _time(slowest.watermark_us),
            "lag_s": _lag(slowest.watermark_us, now_us),
        }
        for slot, slowest in frontier.slowest_of_slots()
    ]


def _local_output(output: str | None) -> LocalFolder | None:
    if output is None or not output.startswith(("/", "file:")):
        return None
    return LocalFolder(Path(output.removeprefix("file:")))


def _last_releases(files: JsonFiles, state: State) -> list[Mapping[str, Any]]:
    first = max(state.next_release - RELEASES_SHOWN, 0)
    manifests = [read_manifest(files, number) for number in range(first, state.next_release)]
    return [
        {
            "release": manifest.release,
            "batch": manifest.batch,
            "through": _time(manifest.through_us),
            "changes": manifest.rows,
            "copies": manifest.copies,
            "mismatches": manifest.mismatches,
        }
        for manifest in manifests
        if manifest is not None
    ]


def _time(us: int) -> str | None:
    if us <= BEFORE_EVERYTHING_US:
        return None
    return datetime.fromtimestamp(us / US_PER_SECOND, UTC).isoformat()


def _lag(us: int, now_us: int) -> float | None:
    return None if us <= BEFORE_EVERYTHING_US else (now_us - us) / US_PER_SECOND


def _folder(checkpoint: str) -> LocalFolder:
    path = local_path(checkpoint)
    if path is None:
        raise ConfigError(
            "status reads checkpoints on this machine only",
            hint="Run it where the checkpoint is, or look at the run's metrics",
            checkpoint=checkpoint,
        )
    return LocalFolder(path / "gate")


def _newest_state(files: JsonFiles, checkpoint: str) -> State:
    try:
        state = newest_state(files)
    except OSError as error:
        raise ConfigError(
            f"the checkpoint cannot be read: {error.strerror}",
            hint="Check the address of the checkpoint",
        ) from error
    if state is None:
        raise ConfigError(
            "there is no state in this checkpoint",
            hint="Check --checkpoint; a run stores its first state at the end of its first batch",
            checkpoint=checkpoint,
        )
    return state


def _left_out(files: JsonFiles, state: State) -> Mapping[str, Any]:
    """Return the change stream's omissions by topic, as the schemas of read changes name them."""
    left_out = {}
    for topic in state.topics:
        stored = [files.read_json(schema_file(schema_id)) for schema_id in topic.value_ids]
        versions = [schema for schema in stored if schema is not None]
        columns, options = unwatched_columns(versions), excludes(versions)
        if columns or options:
            left_out[topic.topic] = {"columns": sorted(columns), "options": list(options)}
    return left_out


def _figures(state: State, *, now_us: int) -> Mapping[str, Any]:
    return {
        "prefix": state.prefix,
        "query_id": state.query_id,
        "batch": state.batch,
        "watermark_us": state.watermark_us,
        "watermark": _time(state.watermark_us),
        "lag_s": _lag(state.watermark_us, now_us),
        "releases": state.next_release,
        "sinks": list(state.sinks),
        "begins": dict(state.begins),
        "mirror": _mirror(state),
        "waiting_segments": len(state.segments),
        "waiting_changes": sum(segment.rows for segment in state.segments),
        "late_changes": state.late_rows,
        "copies": state.copies,
        "dead_letters": state.dead_letters,
        "mismatches": state.mismatches,
        "gaps": [asdict(gap) for gap in state.gaps],
        "stream_has_ended": state.stream_has_ended,
        "topics": [topic.topic for topic in state.topics],
    }


def _mirror(state: State) -> Mapping[str, Any]:
    """Return the release of the mirrors; `merged_at` is None if they take every release."""
    merged_at_us = state.mirror_merged_at_us
    return {
        "release": state.mirrored,
        "releases_behind": state.next_release - 1 - state.mirrored,
        "merged_at": None if merged_at_us is None else _time(merged_at_us),
    }


_CUT = frozenset({"value", "slowest", "token"})
"""Columns that are cut first if a row is too wide, since tokens are longer than any terminal.

The other columns are cut only if that is not enough."""
_UTC, _US = "+00:00", "_us"


def tables_of(figures: Mapping[str, Any]) -> list[Table]:
    """Return what `status` returned: a table of figures, and one for each list that has rows."""
    table = _table("figure", "value")
    for name, value in figures.items():
        readable = name.removesuffix(_US)
        if readable != name and readable in figures:
            continue
        if name not in TITLES:
            shown = value if readable == name or value is None else _instant(value)
            table.add_row(_text(readable), _text(shown))
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
        name.removesuffix(_US): _second(value) if name.endswith(_US) else value
        for name, value in row.items()
    }


def _instant(us: int) -> str:
    return format_rfc3339(us * NS_PER_US)


def _second(us: int) -> str:
    return datetime.fromtimestamp(us // US_PER_SECOND, UTC).isoformat()


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title)
    for name in columns:
        table.add_column(name, no_wrap=name not in _CUT, overflow="ellipsis")
    return table


def _text(value: Any) -> Text:
    """Return text in which rich interprets no markup: a token may hold some."""
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
            return (
                "\n".join(f"{name}: {_plain(member)}" for name, member in value.items()) or "none"
            )
        case list():
            return "\n".join(map(_plain, value)) or "none"
        case _:
            return str(value)
