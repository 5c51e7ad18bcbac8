"""A Delta table beside the releases, to which each batch or release appends once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.spark_consumer.sinks.delta.history import DeltaHistory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_RECENT = 16
"""Commits that are looked at first; others may have committed since."""


def append_once(
    rows: DataFrame, path: str, *, application: str, version: int, commit: Mapping[str, object]
) -> int:
    """Append rows unless the application has appended this version, or a later one.

    The table is created with the first rows.  `commit` identifies the commit among all of the
    table.  Returns how many rows it has added, now or before, by Delta's own count.
    """
    metadata = json.dumps({"tidegate": commit})
    (
        rows.coalesce(1)
        .write.format("delta")
        .mode("append")
        .option("delta.enableDeletionVectors", "false")
        .option("mergeSchema", "true")  # an older program's table lacks later columns
        .option("txnAppId", application)
        .option("txnVersion", version)
        .option("userMetadata", metadata)
        .save(path)
    )
    return _added(DeltaHistory(rows.sparkSession, path), metadata)


def _added(history: DeltaHistory, metadata: str) -> int:
    for limit in (_RECENT, None):
        for commit in history.recent(limit):
            if commit.user_metadata == metadata:
                return int(commit.metrics.get("numOutputRows", "0"))
    return 0
