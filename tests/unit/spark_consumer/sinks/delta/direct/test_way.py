"""Whether delta-rs may write a table, and what is remembered of its files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from tests.unit.spark_consumer.sinks.delta_building import created
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.tables import Commit

SCHEMA = StructType([StructField("id", LongType()), StructField("at", TimestampType())])


@pytest.fixture
def looked_at(monkeypatch):
    """The files whose types were read."""
    files = []
    read = DirectTable.has_long_timestamps
    monkeypatch.setattr(
        DirectTable,
        "has_long_timestamps",
        lambda self, file: files.append(file) or read(self, file),
    )
    return files


def test_the_types_of_a_file_are_read_once_and_forgotten_with_the_file(tmp_path, looked_at):
    """A mirror gets another file with each small release: a run must not remember all of them."""
    way = DirectWay(DirectPlace(str(tmp_path)))
    path = created(tmp_path / "mirror", {"id": "long", "at": "timestamp"})

    def mirror(version=None):
        return way.mirror("mirror", schema=SCHEMA, keys=["id"], version=version)

    for number in range(2):
        table = DirectTable(path)
        rows = [{"id": number, "at": datetime(2026, 1, 1, tzinfo=UTC)}]
        table.append(table.rows(rows, ["id", "at"]), commit=Commit("q", "mirror", number, number))
    first, second = (DeltaTable(path, version=n).file_uris() for n in (1, 2))
    assert mirror() is not None
    assert mirror() is not None
    assert sorted(looked_at) == sorted(second)
    DeltaTable(path).optimize.compact()
    mirror()
    assert len(looked_at) == len(second) + 1
    mirror(version=1)
    assert looked_at[-1:] == first
