"""Every documented read method, and those of real files."""

import pytest

from tidegate.producer.datastream.read_methods import (
    KNOWN_METHODS,
    ReadKind,
    SourceKind,
    read_method_of,
)

KNOWN = {
    "oracle-cdc-logminer": ("oracle", "cdc"),
    "oracle-backfill": ("oracle", "backfill"),
    "oracle-supplementation": ("oracle", "supplementation"),
    "mysql-cdc-binlog": ("mysql", "cdc"),
    "mysql-backfill-incremental": ("mysql", "backfill"),
    "mysql-backfill-fulldump": ("mysql", "backfill"),
    "postgres-cdc-wal": ("postgresql", "cdc"),
    "postgresql-backfill": ("postgresql", "backfill"),
    "salesforce-cdc": ("salesforce", "cdc"),
    "salesforce-backfill": ("salesforce", "backfill"),
    "sqlserver-cdc": ("sqlserver", "cdc"),
    "sqlserver-backfill": ("sqlserver", "backfill"),
    # Of Tidegate's own files.
    "spanner-cdc": ("spanner", "cdc"),
    "spanner-backfill": ("spanner", "backfill"),
    # Not documented, and in real files.
    "postgresql-cdc": ("postgresql", "cdc"),
    "oracle_dump": ("oracle", "backfill"),
}


@pytest.mark.rule("datastream-read-methods", "datastream-tidegate-methods")
@pytest.mark.parametrize("text", KNOWN)
def test_known_methods(text):
    found = read_method_of(text)
    assert (found.text, found.source.value, found.kind.value) == (text, *KNOWN[text])


@pytest.mark.rule("datastream-backfill-methods")
@pytest.mark.parametrize("source", SourceKind)
def test_a_backfill_is_known_by_its_beginning(source):
    found = read_method_of(f"{source.value}-backfill-of-another-kind")
    assert (found.source, found.kind) == (source, ReadKind.BACKFILL)


@pytest.mark.parametrize("text", ["", "mysql", "mysql-cdc", "mongodb-cdc", "MYSQL-CDC-BINLOG"])
def test_others_are_not(text):
    assert read_method_of(text) is None


@pytest.mark.rule("datastream-methods-without-source")
@pytest.mark.parametrize("metadata", [
    {"gtid"}, {"binlog_file", "table"}, {"log_file", "log_position"},
    {"database", "table", "primary_keys"},
])  # fmt: skip
def test_a_method_that_names_no_source_is_mysqls_by_its_metadata(metadata):
    cdc, backfill = read_method_of("cdc", metadata), read_method_of("backfill", metadata)
    assert (cdc.source, cdc.kind) == (SourceKind.MYSQL, ReadKind.CDC)
    assert (backfill.source, backfill.kind) == (SourceKind.MYSQL, ReadKind.BACKFILL)


@pytest.mark.rule("datastream-methods-without-source")
@pytest.mark.parametrize("metadata", [(), {"collection", "database"}, {"schema", "table", "lsn"}])
def test_one_of_a_source_that_is_not_known_is_not(metadata):
    assert read_method_of("cdc", metadata) is None
    assert read_method_of("backfill", metadata) is None


def test_messages_can_name_them():
    assert "mysql-cdc-binlog" in KNOWN_METHODS
    assert "sqlserver-backfill…" in KNOWN_METHODS
