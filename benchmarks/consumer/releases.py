"""What many small releases leave in one changelog, with compaction and without.

    python -m benchmarks.consumer releases [--releases 2000] [--changes 10] [--files-min 32]

A release has few changes, is appended by delta-rs as the sink does it, and is followed by the
maintenance of the tables, as at the end of a batch.  Neither Spark nor Kafka is started.  Measured
are CPU milliseconds of this process, which other programs on the machine change little: of the
first and of the last hundred releases, of their maintenance, and of a full read by delta-rs.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from benchmarks.consumer.gate import QUERY_ID
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.sinks.change_types import change_type
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.maintenance import TableMaintenance, VacuumPolicy
from tidegate.spark_consumer.sinks.delta.tables import TABLE_PROPERTIES, as_nullable
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

_NAMES = [field.split()[0] for field in ROWS_SCHEMA.split(", ")]
_COLUMNS = {"id": "INT64", "owner": "STRING(MAX)", "balance": "INT64", "at": "TIMESTAMP"}
_BOUNDED = {"delta.dataSkippingStatsColumns": "release,ordinal,commit_timestamp"}
_PATH = "changelog/accounts"
_SOME = 100
_NEVER = VacuumPolicy(retention_hours=0, interval_ms=60_000)


class _Changelog:
    """Stands for the sink: says which version its table has."""

    name = DeltaChangelogSink.name

    def __init__(self) -> None:
        self.head = 0

    def heads(self) -> Mapping[str, int]:
        """Return the version of the table."""
        return {_PATH: self.head}


class _NoFiles:
    """Stands for the manifests: nothing is vacuumed."""

    def read_json(self, _name: str) -> dict[str, Any] | None:
        """Return nothing."""
        return None


def measure(options: argparse.Namespace, folder: str) -> Iterator[dict[str, Any]]:
    """Yield a line without compaction, then one with it."""
    for files_min in (0, options.files_min):
        output = f"{folder}/{files_min}"
        yield _run(output, options, files_min=files_min)
        shutil.rmtree(output, ignore_errors=True)


def _run(output: str, options: argparse.Namespace, *, files_min: int) -> dict[str, Any]:
    topic = Topic("accounts", {1: _COLUMNS}, ["id"])
    schema = as_nullable(change_type(topic.topic_schemas()))
    place, sink = DirectPlace(output), _Changelog()
    way = DirectWay(place)
    properties = {**TABLE_PROPERTIES, **_BOUNDED}
    way.create(_PATH, schema=schema, properties=properties, metadata="{}")
    stand_ins: Any = ([sink], _NoFiles())
    maintain = TableMaintenance(
        place,
        stand_ins[0],
        manifests=stand_ins[1],
        limits=CompactionLimits(files_min, options.target_bytes),
        vacuum=_NEVER,
        require_writer=lambda: None,
    )
    writing, maintaining = [], []
    for number in range(options.releases):
        changes = _changes(topic, number, options.changes)
        commit = Commit(QUERY_ID, sink.name, number, 1_000 * (number + 1))

        def write(changes: Any = changes, commit: Commit = commit) -> None:
            table = way.table(_PATH, schema=schema)
            if table is None:
                message = "the table is not one for delta-rs"
                raise AssertionError(message)
            table.append(table.rows(changes, schema.fieldNames()), commit=commit)

        writing.append(_cpu_ms(write))
        sink.head += 1
        maintaining.append(_cpu_ms(maintain))
    path = f"{output}/{_PATH}"
    rows = DeltaTable(path).to_pyarrow_table(columns=["release", "ordinal"]).num_rows
    if rows != options.releases * options.changes:
        message = f"expected {options.releases * options.changes} rows, found {rows}"
        raise AssertionError(message)
    files = DeltaTable(path).file_uris()
    log = Path(path, "_delta_log")
    return {
        "files_min": files_min,
        "releases": options.releases,
        "files": len(files),
        "MB of them": round(sum(Path(one).stat().st_size for one in files) / 1e6, 2),
        "checkpoints of the log": len(list(log.glob("*.checkpoint.parquet"))),
        "CPU ms of a release, first": round(statistics.median(writing[1 : 1 + _SOME]), 1),
        "CPU ms of a release, last": round(statistics.median(writing[-_SOME:]), 1),
        "CPU ms of maintenance, mean": round(statistics.mean(maintaining), 2),
        "CPU ms of maintenance, most": round(max(maintaining)),
        "CPU s in all": round((sum(writing) + sum(maintaining)) / 1_000, 1),
        "CPU ms of a full read": round(_cpu_ms(lambda: DeltaTable(path).to_pyarrow_table())),
    }


def _changes(topic: Topic, number: int, count: int) -> list[dict[str, Any]]:
    made = [
        Change(
            "INSERT",
            {"id": number * count + n},
            {"owner": f"o{n}", "balance": number, "at": None},
            us=1_000 * number + n + 1,
        )
        for n in range(count)
    ]
    rows = [
        dict(zip(_NAMES, topic.row(change, ordinal=n), strict=True))
        for n, change in enumerate(made)
    ]
    return decode_rows(rows, topic.topic_schemas(), release=number)


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1_000 * (time.process_time() - began)
