"""What many small releases leave in one changelog, with compaction and without.

A release has few changes, is written by delta-rs, and is followed by the maintenance of the tables,
as at the end of a batch.  Measured are the seconds of a release with its maintenance, the files
that the table has, and the seconds in which others read it: delta-rs, and Spark in a session that
has not seen the table's files before.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from benchmarks.consumer.gate import QUERY_ID, new_session
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.maintenance import TableMaintenance, VacuumPolicy
from tidegate.spark_consumer.sinks.port import Release
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_NAMES = [field.split()[0] for field in ROWS_SCHEMA.split(", ")]
_COLUMNS = {"id": "INT64", "owner": "STRING(MAX)", "balance": "INT64", "at": "TIMESTAMP"}
_LAST = 100
"""Releases at the end whose seconds are compared with those of the first ones."""
_NEVER = VacuumPolicy(retention_hours=0, interval_ms=60_000)


class _NoFiles:
    """Stands for the manifests: nothing is vacuumed."""

    def read_json(self, _name: str) -> dict[str, Any] | None:
        return None

    def write_json(self, name: str, content: object) -> None:
        raise NotImplementedError

    def delete(self, names: object) -> None:
        raise NotImplementedError


def measure(options: argparse.Namespace, folder: str) -> Iterator[dict[str, Any]]:
    """Yield a line without compaction, then one with it."""
    spark = new_session(folder)
    try:
        for files_min in (0, options.files_min):
            output = f"{folder}/{files_min}"
            yield _run(spark, output, options, files_min=files_min)
            shutil.rmtree(output, ignore_errors=True)
    finally:
        spark.stop()


def _run(
    spark: SparkSession, output: str, options: argparse.Namespace, *, files_min: int
) -> dict[str, Any]:
    topic = Topic("accounts", {1: _COLUMNS}, ["id"])
    sink = DeltaChangelogSink(spark, output, direct=DirectWay(DirectPlace(output)))
    sink.open(query_id=QUERY_ID, release_max=-1)
    maintain = TableMaintenance(
        DirectPlace(output),
        [sink],
        manifests=_NoFiles(),
        limits=CompactionLimits(files_min, options.target_bytes),
        vacuum=_NEVER,
        require_writer=lambda: None,
    )
    writing, maintaining = [], []
    for number in range(options.releases):
        release = _release(spark, topic, number, options.changes)
        began = time.perf_counter()
        sink.write(release)
        written = time.perf_counter()
        maintain()
        writing.append(written - began)
        maintaining.append(time.perf_counter() - written)
    path = f"{output}/changelog/accounts"
    table = DeltaTable(path)
    figures = {
        "files_min": files_min,
        "releases": options.releases,
        "files": len(table.file_uris()),
        "MB of them": round(sum(Path(one).stat().st_size for one in table.file_uris()) / 1e6, 1),
        "log entries since the last checkpoint": _entries(path),
        "ms of the first releases": _median_ms(writing[1 : 1 + _LAST]),
        "ms of the last releases": _median_ms(writing[-_LAST:]),
        "ms of maintenance, mean": round(1_000 * statistics.mean(maintaining), 2),
        "ms of maintenance, most": round(1_000 * max(maintaining)),
        "seconds in all": round(sum(writing) + sum(maintaining), 1),
        "seconds of delta-rs' read": _seconds(lambda: _rows_by_delta_rs(path)),
        "seconds of Spark's read": _seconds(lambda: _rows_by_spark(spark, path)),
    }
    expected = options.releases * options.changes
    found = {_rows_by_delta_rs(path), _rows_by_spark(spark, path)}
    if found != {expected}:
        message = f"expected {expected} rows, found {sorted(found)}"
        raise AssertionError(message)
    return figures


def _release(spark: SparkSession, topic: Topic, number: int, changes: int) -> Release:
    values = [{"owner": f"o{n}", "balance": number, "at": None} for n in range(changes)]
    made = [
        Change("INSERT", {"id": number * changes + n}, one, us=1_000 * number + n + 1)
        for n, one in enumerate(values)
    ]
    rows = [
        dict(zip(_NAMES, topic.row(change, ordinal=n), strict=True))
        for n, change in enumerate(made)
    ]
    schemas = topic.topic_schemas()
    decoded = decode_rows(rows, schemas, release=number)
    table = CollectedTable(spark, _no_frame, decoded, schemas)
    return Release(
        number=number,
        after_us=1_000 * number,
        through_us=1_000 * (number + 1),
        query_id=QUERY_ID,
        batch=number,
        rows=changes,
        tables={topic.topic: table},
    )


def _no_frame() -> Any:
    message = "a small release was written by Spark"
    raise AssertionError(message)


def _rows_by_delta_rs(path: str) -> int:
    return int(DeltaTable(path).to_pyarrow_table(columns=["release", "new_values"]).num_rows)


def _rows_by_spark(spark: SparkSession, path: str) -> int:
    rows = spark.read.format("delta").load(path)
    return len(rows.select("release", "new_values.owner").where("new_values.id >= 0").collect())


def _entries(path: str) -> int:
    log = Path(path, "_delta_log")
    checkpoints = [int(file.name[:20]) for file in log.glob("*.checkpoint.parquet")]
    newest = max(checkpoints, default=-1)
    return sum(int(file.stem) > newest for file in log.glob("*.json"))


def _median_ms(seconds: list[float]) -> float:
    return round(1_000 * statistics.median(seconds), 1)


def _seconds(read: Any) -> float:
    began = time.perf_counter()
    read()
    return round(time.perf_counter() - began, 2)
