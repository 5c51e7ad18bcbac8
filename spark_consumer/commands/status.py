"""`tidegate-consumer status`: how far the gate has come, read from a checkpoint without Spark."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.schemas.change_schema import excludes, unwatched_columns
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.topic_template import SETTING, TEMPLATE_DEFAULT
from tidegate.spark_consumer.checkpoint.gate_files import complete_from_us, newest_state
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.core.files import QUERY_FILE, schema_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spark_consumer.core.batch_state import State

__all__ = ["status"]


def status(checkpoint: str) -> Mapping[str, Any]:
    """Return the figures of a checkpoint's newest state, ready for JSON.

    Raises ConfigError for a checkpoint that is not on this machine, cannot be read or is empty.
    """
    files = _folder(checkpoint)
    state = _newest_state(files, checkpoint)
    return {
        **_figures(state),
        "topic_template": (files.read_json(QUERY_FILE) or {}).get(SETTING, TEMPLATE_DEFAULT),
        "complete_from_us": complete_from_us(files),
        "left_out": _left_out(files, state),
    }


def _folder(checkpoint: str) -> LocalFolder:
    if "://" in checkpoint:
        message = "status reads checkpoints on this machine only"
        raise ConfigError(message, hint="Look at its gate/states folder", checkpoint=checkpoint)
    return LocalFolder(Path(checkpoint.removeprefix("file:")) / "gate")


def _newest_state(files: LocalFolder, checkpoint: str) -> State:
    try:
        state = newest_state(files)
    except OSError as error:
        message = f"the checkpoint cannot be read: {error.strerror}"
        raise ConfigError(message, hint="Check --checkpoint") from error
    if state is None:
        message = "there is no state in this checkpoint"
        raise ConfigError(message, hint="Check --checkpoint", checkpoint=checkpoint)
    return state


def _left_out(files: LocalFolder, state: State) -> Mapping[str, Any]:
    """Return what the change stream leaves out, by topic, as far as changes have shown it."""
    found = {}
    for topic in state.topics:
        stored = [files.read_json(schema_file(schema_id)) for schema_id in topic.value_ids]
        versions = [schema for schema in stored if schema is not None]
        columns, options = unwatched_columns(versions), excludes(versions)
        if columns or options:
            found[topic.topic] = {"columns": sorted(columns), "options": list(options)}
    return found


def _figures(state: State) -> Mapping[str, Any]:
    watermark = None
    if state.watermark_us > BEFORE_EVERYTHING_US:
        watermark = datetime.fromtimestamp(state.watermark_us / US_PER_SECOND, UTC).isoformat()
    return {
        "prefix": state.prefix,
        "query_id": state.query_id,
        "batch": state.batch,
        "watermark_us": state.watermark_us,
        "watermark": watermark,
        "releases": state.next_release,
        "sinks": list(state.sinks),
        "begins": dict(state.begins),
        "mirror": _mirror(state),
        "waiting_segments": len(state.segments),
        "waiting_changes": sum(segment.rows for segment in state.segments),
        "late_changes": state.late_rows,
        "mismatches": state.mismatches,
        "gaps": [asdict(gap) for gap in state.gaps],
        "stream_has_ended": state.stream_has_ended,
        "topics": [topic.topic for topic in state.topics],
    }


def _mirror(state: State) -> Mapping[str, Any]:
    """Return where the mirrors stand; `merged_at` is None where they take each release."""
    merged_at_us = state.mirror_merged_at_us
    return {
        "release": state.mirrored,
        "releases_behind": state.next_release - 1 - state.mirrored,
        "merged_at": None
        if merged_at_us is None
        else datetime.fromtimestamp(merged_at_us / US_PER_SECOND, UTC).isoformat(),
    }
