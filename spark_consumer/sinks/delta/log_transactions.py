"""The newest numbers of a Delta table's writers (`txn`), read from the files of the table's log.

Delta's protocol names these files, so no class of Delta's is needed: each distribution of Delta has
others.  The state of a table is its newest checkpoint and the commits after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.session_settings import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_LOG = "_delta_log"
_FILE: Final = re.compile(
    r"(?P<version>\d{20})\."
    r"(json|checkpoint\.(?P<unique>[0-9a-f-]{36}\.)?((?P<part>\d{10})\.(?P<parts>\d{10})\.)?"
    r"(json|parquet))"
)
_PATTERN: Final = re.compile(r"[{}\[\]*?\\^]")
_SCHEMA = "txn STRUCT<appId: STRING, version: BIGINT>"
_NO_CHECK = {"spark.databricks.delta.formatCheck.enabled": "false"}
"""Databricks refuses to read files in a table's folder unless it is read as a table."""


def newest_numbers(spark: SparkSession, files: Storage, sink: str) -> dict[str, int]:
    """Return the newest number of each query that wrote as a sink, by its id: one Spark job.

    `files` is the table's folder; without a table there is no number.
    """
    frames: list[DataFrame] = []
    names = state_files(files.names(_LOG))
    with session_settings(spark, _NO_CHECK):
        for kind in ("parquet", "json"):
            paths = [_literal(files.path(f"{_LOG}/{name}")) for name in names if kind in name]
            if paths:
                reader = spark.read.format(kind).schema(_SCHEMA)
                frames.append(reader.load(paths).select("txn.appId", "txn.version"))
        if not frames:
            return {}
        found = frames[0].unionByName(frames[-1]) if len(frames) > 1 else frames[0]
        rows = found.where(found["appId"].endswith(f"/{sink}")).collect()
    # A writer's numbers ascend.
    return {
        row["appId"].removesuffix(f"/{sink}"): int(row["version"])
        for row in sorted(rows, key=lambda row: int(row["version"]))
    }


def state_files(names: Iterable[str]) -> list[str]:
    """Return the files of a log that have the state of the newest version, by all their names.

    Those are the newest checkpoint that is complete, in one of its three forms, and the commits
    after it.
    """
    checkpoints: dict[tuple[int, str, str], list[str]] = {}
    commits: list[tuple[int, str]] = []
    for name in names:
        match = _FILE.fullmatch(name)
        if match is None:
            continue
        version = int(match["version"])
        if ".checkpoint." not in name:
            commits.append((version, name))
            continue
        form = (version, match["unique"] or "", match["parts"] or "1")
        checkpoints.setdefault(form, []).append(name)
    complete = [form for form, parts in checkpoints.items() if len(parts) == int(form[2])]
    newest = max(complete, default=(-1, "", ""))
    later = [name for version, name in sorted(commits) if version > newest[0]]
    return [*sorted(checkpoints.get(newest, ())), *later]


def _literal(path: str) -> str:
    """Return a path as Spark takes it where it would also take a pattern."""
    return _PATTERN.sub(r"\\\g<0>", path)
