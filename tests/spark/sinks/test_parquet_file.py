"""A Parquet file without Spark: Spark reads from it what it had written itself."""

import pytest

from tests.spark.sinks.delta.test_direct_way import history as every_type
from tidegate.spark_consumer.sinks.parquet_file import parquet_file

pytestmark = pytest.mark.spark


def test_spark_reads_every_type_as_it_was(kit, tmp_path):
    for number, (topic, changes) in enumerate(every_type()):
        release = kit.release(number, [(topic, change) for change in changes], small=True)
        (one,) = release.tables.values()
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(parquet_file(one.changes, one.schema))
        found = kit.spark.read.parquet(str(path))
        assert found.columns == one.schema.names
        assert [field.dataType for field in found.schema] == [
            field.dataType for field in one.schema
        ]
        assert [row.ordinal for row in found.select("ordinal").collect()] == [
            change["ordinal"] for change in one.changes
        ]
        assert found.exceptAll(one.frame).count() == 0
        assert one.frame.exceptAll(found).count() == 0
