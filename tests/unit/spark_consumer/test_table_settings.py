"""The settings of tables: what is refused, by the setting's name."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.table_settings import column_names

NEEDED = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


def load(file=None, **changes):
    return ConsumerConfig.load(file, **{**NEEDED, **changes})


def test_by_default_small_files_are_rewritten_and_nothing_is_deleted():
    config = load()
    assert (config.compact_files_min, config.target_file_bytes) == (32, 32 * 1024**2)
    assert config.vacuum_retention_hours == 0
    assert (config.table_properties, config.mirror_partition_by) == ({}, {})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"compact_files_min": 1}, "compact_files_min: must be 0, or 2 or more"),
        ({"compact_files_min": -1}, "compact_files_min: "),
        ({"target_file_bytes": 1_000}, "target_file_bytes: "),
        ({"vacuum_retention_hours": 23}, "vacuum_retention_hours: must be 0, or 24 or more"),
        ({"vacuum_interval_ms": 0}, "vacuum_interval_ms: "),
        (
            {"table_properties": {"delta.appendOnly": "true"}},
            "table_properties: delta.appendOnly: ",
        ),
        ({"table_properties": {"tidegate.x": "1"}}, "table_properties: tidegate.x: "),
        ({"table_properties": {"owner": "me"}}, "table_properties: owner: "),
        ({"table_properties": "x"}, "table_properties: must be a table"),
        ({"mirror_partition_by": {"a": " , "}}, "mirror_partition_by: a: name each column"),
        ({"mirror_cluster_by": {"a": "x,x"}}, "mirror_cluster_by: a: name each column"),
        (
            {"mirror_partition_by": {"a": "x"}, "mirror_cluster_by": {"a": "y"}},
            "mirror_cluster_by: a: a table in mirror_partition_by cannot be clustered too",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(changes, expected):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


def test_names_with_dots_need_no_quotes_and_values_are_text(tmp_path):
    file = tmp_path / "consumer.toml"
    file.write_text(
        "[table_properties]\ndelta.enableDeletionVectors = true\n"
        '"delta.logRetentionDuration" = "interval 7 days"\n'
        '[mirror_partition_by]\naccounts = "region"\nsales.orders = "country, year"\n'
    )
    config = load(file)
    assert config.table_properties == {
        "delta.enableDeletionVectors": "true",
        "delta.logRetentionDuration": "interval 7 days",
    }
    assert config.mirror_partition_by == {"accounts": "region", "sales.orders": "country, year"}


def test_columns_are_named_with_commas():
    assert column_names(" country, year ,") == ("country", "year")
