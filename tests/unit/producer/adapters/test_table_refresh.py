"""A changed table, looked up and registered."""

import pytest

from tidegate.producer.adapters.change_encoder import TableRegistrar
from tidegate.producer.adapters.table_refresh import TableRefreshFromCatalogue
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.spanner_records import DataChangeRecord, RecordColumn
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

INT64 = ColumnType("INT64")
OLD = TableSchema("t", (Column("id", INT64, 1, key_position=1),))
NEW = TableSchema("t", (*OLD.columns, Column("added", INT64, 2)))


class Catalogue:
    def __init__(self, *tables):
        self.tables = {table.name: table for table in tables}

    def table(self, name):
        return self.tables.get(name)


@pytest.fixture
def registrar():
    return TableRegistrar(TopicNames("p"), InMemorySchemaRegistry())


def record(*names):
    columns = tuple(RecordColumn(name, INT64, False, 9) for name in names)
    return DataChangeRecord(
        0, "0", "tx", True, "t", columns, (), "INSERT", "NEW_ROW", 1, 1, "", False
    )


def test_what_the_catalogue_says_now_is_registered(registrar):
    known = registrar.register(OLD)
    encoding = TableRefreshFromCatalogue(Catalogue(NEW), registrar)(record("added"), known)
    assert encoding.table == NEW
    assert encoding.value.schema_id != known.value.schema_id
    assert encoding.key.schema_id == known.key.schema_id


def test_a_column_dropped_since_is_taken_from_the_record(registrar):
    known = registrar.register(OLD)
    encoding = TableRefreshFromCatalogue(Catalogue(OLD), registrar)(record("gone"), known)
    assert encoding.table.column_names == {"id", "gone"}


def test_a_table_new_to_the_stream_is_refused_unless_its_topic_can_be_made(registrar):
    with pytest.raises(IncompatibleChange, match="another table"):
        TableRefreshFromCatalogue(Catalogue(OLD), registrar)(record("id"), None)
    prepared = []
    refresh = TableRefreshFromCatalogue(Catalogue(OLD), registrar, prepared.append)
    assert refresh(record("id"), None) in prepared
    refresh(record("id"), registrar.register(OLD))
    assert len(prepared) == 1
