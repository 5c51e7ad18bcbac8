"""Writes that a table's owner has made impossible; Spark's are in the tests of the mirror."""

from __future__ import annotations

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.refused_writes import named_refusals
from tidegate.spark_consumer.sinks.delta.tables import for_each_table

CHECK = """[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint few (n < 10) violated by row \
with values:
 - n : 99 SQLSTATE: 23001"""


def fail(error):
    def write(_topic):
        raise error

    return write


def test_a_table_for_appends_only_is_named_and_written_once_it_is_not(tmp_path):
    path = str(tmp_path / "t")
    rows = pyarrow.table({"id": [1], "a": ["x"]})
    write_deltalake(path, rows, configuration={"delta.appendOnly": "true"})
    changed = {
        "same_row": "t.id = s.id",
        "is_deleted": "false",
        "updated": {"a": "s.a"},
        "is_inserted": "true",
        "inserted": {"id": "s.id", "a": "s.a"},
    }

    def write(_topic):
        table = DirectTable(path)
        source = table.rows([{"id": 1, "a": "y"}], ["id", "a"])
        table.merge(source, **changed, commit=Commit("query-1", "mirror", 1, 1_000))

    with pytest.raises(ConfigError, match=r"appends only.*topic='p\.t'.*delta\.appendOnly"):
        for_each_table(None, ["p.t"], write)
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
    for_each_table(None, ["p.t"], write)
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"id": 1, "a": "y"}]


def test_a_constraint_is_named_without_the_rows_values():
    with pytest.raises(ConfigError, match=r"constraint='few \(n < 10\)'") as found:
        for_each_table(None, ["p.t"], fail(RuntimeError(f"Job aborted: {CHECK}")))
    assert "99" not in str(found.value)


def test_other_errors_stay_as_they_are():
    for error in (RuntimeError("append"), ConfigError("table is append-only"), KeyError("x")):
        with pytest.raises(type(error)) as found, named_refusals("p.t"):
            raise error
        assert found.value is error
