"""The commits of a Delta table, read through Spark and from the files of its log.

Delta's protocol defines these files, so no class of Delta's is needed: these differ between
distributions.  The state of a table is its newest checkpoint and the commits after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from delta.tables import DeltaTable

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.commit_log import TableCommit, is_stated
from tidegate.spark_consumer.sinks.sql import session_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


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


class DeltaHistory:
    """The table at `path` (absolute, as Spark takes it); it may not exist."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._files = Storage(spark, path)

    def recent(self, limit: int | None) -> Sequence[TableCommit]:
        """Return the newest commits by Delta's own history: one Spark job."""
        if not DeltaTable.isDeltaTable(self._spark, self._path):
            return ()
        table = DeltaTable.forPath(self._spark, self._path)
        history = table.history() if limit is None else table.history(limit)
        rows = history.select("version", "operation", "userMetadata", "operationMetrics").collect()
        return [self._described(row) for row in rows]

    def _described(self, row: Row) -> TableCommit:
        """Return a commit of the history; a foreign one is read from its file, which has more."""
        version, operation, metadata = row["version"], row["operation"], row["userMetadata"]
        is_stated_commit = is_stated(operation, metadata)
        if not is_stated_commit and (of_file := self.commit(version)) is not None:
            return of_file
        return TableCommit(version, operation, metadata, row["operationMetrics"] or {})

    def commit(self, version: int) -> TableCommit | None:
        """Return a commit from its file, which Delta's protocol names: no Spark job."""
        text = self._files.read(f"_delta_log/{version:020d}.json")
        return None if text is None else parse_commit(version, text)

    def numbers(self, sink: str) -> Mapping[str, int]:
        """Return the newest number of each query that wrote as a sink: one Spark job at most."""
        return newest_numbers(self._spark, self._files, sink)


def parse_commit(version: int, text: bytes) -> TableCommit:
    """Read a commit file, one JSON action a line; a commit without `commitInfo` is "unknown"."""
    info: dict[str, Any] = {}
    changes_rows = False
    for line in text.splitlines():
        action = json.loads(line)
        info = action.get("commitInfo", info)
        changes_rows |= any(
            action[kind].get("dataChange", True) for kind in ("add", "remove") if kind in action
        )
    return TableCommit(
        version,
        info.get("operation", "unknown"),
        info.get("userMetadata"),
        info.get("operationMetrics") or {},
        changes_rows,
        (info.get("operationParameters") or {}).get("mode"),
    )


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
        transactions = frames[0].unionByName(frames[-1]) if len(frames) > 1 else frames[0]
        rows = transactions.where(transactions["appId"].endswith(f"/{sink}")).collect()
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
