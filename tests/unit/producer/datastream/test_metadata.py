"""Each source's metadata has every field of its table in the documentation."""

from dataclasses import fields

import pytest

from tidegate.producer.datastream.errors import InvalidEvent, WrongSchema
from tidegate.producer.datastream.metadata import (
    MySqlMetadata,
    OracleMetadata,
    PostgreSqlMetadata,
    SalesforceMetadata,
    SpannerMetadata,
    SqlServerMetadata,
    metadata_of,
)
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.read_methods import SourceKind

HERE = Position("a.avro", 1)
DOCUMENTED = {
    SourceKind.MYSQL: (
        MySqlMetadata, ("shop", "orders"),
        {"log_file": "mysql-bin.000014", "log_position": 48351, "primary_keys": ["id"],
         "is_deleted": True, "database": "shop", "table": "orders", "change_type": "DELETE"},
    ),
    SourceKind.ORACLE: (
        OracleMetadata, ("DB1", "ROOT", "SAMPLE"),
        {"log_file": "", "scn": 15869116216871, "row_id": "AAAPwRAALAAMzMBABD",
         "is_deleted": False, "database": "DB1", "schema": "ROOT", "table": "SAMPLE",
         "change_type": "INSERT", "tx_id": "1.2.3", "rs_id": "0x0073c9.000a4e4c.01d0", "ssn": 67},
    ),
    SourceKind.POSTGRESQL: (
        PostgreSqlMetadata, ("public", "orders"),
        {"schema": "public", "table": "orders", "is_deleted": False, "change_type": "UPDATE",
         "tx_id": "363552", "lsn": "16/CB002DB0", "primary_keys": ["a", "b"]},
    ),
    SourceKind.SQL_SERVER: (
        SqlServerMetadata, ("7", "dbo", "orders"),
        {"table": "orders", "database": 7, "schema": ["dbo"], "is_deleted": False,
         "lsn": "00000025:00000728:0003", "tx_id": "0000:00000777",
         "physical_location": [1, 2, 3], "replication_index": ["id"], "change_type": "INSERT"},
    ),
    SourceKind.SALESFORCE: (
        SalesforceMetadata, ("shop.example", "Account"),
        {"object_name": "Account", "domain": "shop.example", "is_deleted": False,
         "change_type": "INSERT", "primary_keys": ["Id"]},
    ),
    SourceKind.SPANNER: (
        SpannerMetadata, ("shop", "Items"),
        {"database": "d", "schema": "shop", "table": "Items", "primary_keys": ["Shop", "Sku"],
         "is_deleted": False, "change_type": "UPDATE", "tx_id": "MTIz",
         "record_sequence": "00000002", "mod_number": 1, "commit_timestamp": 1700000000123456,
         "is_last_record_in_transaction_in_partition": True,
         "number_of_records_in_transaction": 3, "number_of_partitions_in_transaction": 2,
         "transaction_tag": "reprice", "is_system_transaction": False,
         "value_capture_type": "NEW_ROW", "captured_columns": ["Shop", "Sku"]},
    ),
}  # fmt: skip


@pytest.mark.rule("datastream-source-fields", "datastream-field-types")
@pytest.mark.parametrize("source", SourceKind)
def test_every_documented_field_is_read(source):
    kind, path, values = DOCUMENTED[source]
    found = metadata_of(source, values, HERE)
    assert type(found) is kind
    assert found.path == path
    assert found.further == {}
    for name, value in values.items():
        read = getattr(found, name)
        if isinstance(value, list) and name != "schema":
            assert read == tuple(value)
        elif name in ("schema", "database"):
            assert read == (value[0] if isinstance(value, list) else str(value))
        else:
            assert read == value
    assert {one.name for one in fields(kind)} - set(values) <= {
        "further", "primary_keys", "gtid",
    }  # fmt: skip


@pytest.mark.rule("datastream-source-fields")
@pytest.mark.parametrize("source", SourceKind)
def test_old_files_have_few_of_them_and_new_ones_may_have_more(source):
    name = "object_name" if source is SourceKind.SALESFORCE else "table"
    found = metadata_of(source, {name: "t", "new_field": 3}, HERE)
    assert found.path == ("t",)
    assert found.change_type is found.is_deleted is None
    assert found.key_columns == ()
    assert found.further == {"new_field": 3}


def test_the_name_of_the_object_is_needed():
    for source in SourceKind:
        with pytest.raises(WrongSchema, match=r"no source_metadata\."):
            metadata_of(source, {}, HERE)


@pytest.mark.rule("datastream-field-types")
def test_types_of_real_files_where_the_documentation_has_others():
    sql_server = metadata_of(
        SourceKind.SQL_SERVER, {"table": "t", "database": "shop", "schema": "dbo"}, HERE
    )
    assert sql_server.path == ("shop", "dbo", "t")
    postgresql = metadata_of(SourceKind.POSTGRESQL, {"table": "t", "tx_id": 363552}, HERE)
    assert postgresql.tx_id == "363552"


@pytest.mark.rule("datastream-replication-index")
def test_an_index_identifies_rows_where_there_is_no_primary_key():
    def key(**values):
        return metadata_of(SourceKind.SQL_SERVER, {"table": "t", **values}, HERE).key_columns

    assert key(replication_index=["a", "b"]) == ("a", "b")
    assert key(replication_index=["a"], primary_keys=["id"]) == ("id",)
    assert key(replication_index=["a"], primary_keys=[]) == ("a",)
    assert key() == ()


@pytest.mark.rule("datastream-tidegate-commit-time")
def test_a_table_of_spanner_may_have_no_schema_and_its_time_is_a_number_or_text():
    def found(**values):
        return metadata_of(SourceKind.SPANNER, {"table": "t", "schema": "", **values}, HERE)

    assert found().path == ("t",)
    at = found(commit_timestamp="2023-11-14T22:13:20.123456Z").commit_timestamp
    assert at == found(commit_timestamp=1_700_000_000_123_456).commit_timestamp
    with pytest.raises(InvalidEvent, match=r"source_metadata\.commit_timestamp is not a time"):
        found(commit_timestamp="yesterday")


@pytest.mark.parametrize(
    ("change_type", "capture", "is_whole"),
    [("INSERT", "NEW_VALUES", True), ("UPDATE", "NEW_ROW", True), ("UPDATE", "NEW_VALUES", False),
     ("UPDATE", "NEW_ROW_AND_OLD_VALUES", True), ("UPDATE", "OLD_AND_NEW_VALUES", False),
     ("UPDATE", None, False)],
)  # fmt: skip
def test_an_update_of_spanner_is_a_whole_row_where_the_stream_captures_it(
    change_type, capture, is_whole
):
    values = {"table": "t", "change_type": change_type, "value_capture_type": capture}
    assert metadata_of(SourceKind.SPANNER, values, HERE).is_whole_row is is_whole


def test_mysql_with_global_identifiers_has_other_names_for_its_place():
    values = {
        "table": "orders", "database": "shop", "gtid": f"{SERVER}:23",
        "binlog_file": "mysql-bin.000014", "binlog_position": 0,
    }  # fmt: skip
    found = metadata_of(SourceKind.MYSQL, values, HERE)
    assert (found.gtid, found.log_file, found.log_position) == (
        f"{SERVER}:23", "mysql-bin.000014", 0,
    )  # fmt: skip
    assert found.further == {}


SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
