"""The commits of a Delta table, read through Spark and from the files of its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.commit_log import TableCommit, is_stated
from tidegate.spark_consumer.sinks.delta.log_transactions import newest_numbers

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class DeltaHistory:
    """The table at `path` (absolute, as Spark takes it); it may not exist."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Read nothing yet."""
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
        """Return a commit of the history; what others have changed is in its file only."""
        version, operation, metadata = row["version"], row["operation"], row["userMetadata"]
        is_ours = is_stated(operation, metadata)
        if not is_ours and (of_file := self.commit(version)) is not None:
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
