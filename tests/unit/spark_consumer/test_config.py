"""Settings: what is needed, what is refused, and that all faults are reported together."""

from __future__ import annotations

import os

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.table_settings import column_names

NEEDED = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081/apis/ccompat/v7",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TIDEGATE_CONSUMER_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "consumer.toml"

    def write(text):
        path.write_text(text)
        return path

    return write


def load(file=None, **changes):
    return ConsumerConfig.load(file, **{**NEEDED, **changes})


def test_flags_win_over_environment_and_environment_over_file(file, environment):
    path = file('prefix = "file"\noutput = "file"\ncheckpoint = "file"\n')
    environment.setenv("TIDEGATE_CONSUMER_OUTPUT", "environment")
    environment.setenv("TIDEGATE_CONSUMER_CHECKPOINT", "environment")
    config = load(path, checkpoint="flag", prefix=None, output=None)
    assert (config.prefix, config.output, config.checkpoint) == ("file", "environment", "flag")


def test_all_faults_are_reported_together(file, environment):
    environment.setenv("TIDEGATE_CONSUMER_SPEED", "high")
    path = file('colour = "red"\n')
    flags = {"prefix": "no spaces", "registry_url": "ftp://x", "metrics_port": 99999}
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.load(path, **flags, until="noon")
    text = str(caught.value)
    for name in ("TIDEGATE_CONSUMER_SPEED", "colour", "prefix", "registry_url", "metrics_port"):
        assert f"{name}: " in text
    for name in ("bootstrap_servers", "output", "checkpoint"):
        assert f"{name}: is not set" in text
    assert "until: must be one of '', 'caught-up'" in text
    assert "tidegate-consumer run --help" in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        # Options that would be dropped or break promises.
        *(
            ({"kafka_options": {name: "secret"}}, f"kafka_options: {name}: {reason}")
            for names, reason in (
                (("isolation.level", "group.id"), "the guarantees rest on these"),
                (("socket.timeout.ms", "sasl.jaas.config"), "not an option that the consumer can"),
            )
            for name in names
        ),
        ({"registry_url": "ftp://user:secret@host"}, "registry_url: "),
        (
            {"sinks": "changelog,hive"},
            "'hive': not one of changelog, mirror, history, parquet, iceberg_changelog",
        ),
        *(({"sinks": text}, "once at most") for text in ("", " , ", "mirror,mirror")),
        *(
            ({f"datastream_files_{name}": value}, f"datastream_files_{name}")
            for name, value in (
                ("format", "parquet"),
                ("rows_max", 0),
                ("bytes_max", 0),
                ("bytes_max", 2**29),
            )
        ),
        # The ordered topic and its sink belong together.
        ({"sinks": "changelog,topic"}, "needs the name of a topic"),
        ({"ordered_topic": "bank-ordered"}, "add it to sinks"),
        (
            {"sinks": "topic", "ordered_topic": "x", "ordered_topic_partitions": 3},
            "a total order has one",
        ),
        *(
            ({"ordered_topic_timeout_ms": wrong}, "ordered_topic_timeout_ms")
            for wrong in (9_999, 2**31)
        ),
        ({"iceberg_catalog": "lake"}, "add one to sinks"),
        ({"iceberg_namespace": "bank"}, "add one to sinks"),
        ({"sinks": "iceberg_mirror", "iceberg_catalog": "a.b"}, "iceberg_catalog"),
        ({"sinks": "iceberg_mirror", "iceberg_namespace": "a..b"}, "iceberg_namespace"),
        ({"mirror_accepts": "exclude_delete,everything"}, "'everything': not one of"),
        ({"mirror_accepts": "\udc80"}, "udc80"),
        *(
            ({"catalog_schema": schema}, "not the name of a schema")
            for schema in ("lake.", ".bank", "/lake", "my-bank", "a b", "`bank`")
        ),
        # Tables.
        ({"compact_files_min": 1}, "compact_files_min: must be 0, or 2 or more"),
        ({"compact_files_min": -1}, "compact_files_min: "),
        ({"target_file_bytes": 1_000}, "target_file_bytes: "),
        ({"vacuum_retention_hours": 23}, "vacuum_retention_hours: must be 0, or 24 or more"),
        ({"vacuum_interval_ms": 0}, "vacuum_interval_ms: "),
        *(
            ({"table_properties": {name: value}}, f"table_properties: {name}: ")
            for name, value in (
                ("delta.appendOnly", "true"),
                ("tidegate.x", "1"),
                ("owner", "me"),
            )
        ),
        ({"table_properties": "x"}, "table_properties: must be a table"),
        ({"mirror_partition_by": {"a": " , "}}, "mirror_partition_by: a: name each column"),
        ({"mirror_cluster_by": {"a": "x,x"}}, "mirror_cluster_by: a: name each column"),
        (
            {"mirror_partition_by": {"a": "x"}, "mirror_cluster_by": {"a": "y"}},
            "mirror_cluster_by: a: a table in mirror_partition_by cannot be clustered too",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_its_name_without_a_secret(changes, text):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert text in str(caught.value)
    assert caught.value.exit_code == 2
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"sink_names": ("changelog", "mirror"), "session_packages": SPARK_PACKAGES}),
        ({"sinks": " mirror , changelog "}, {"sink_names": ("changelog", "mirror")}),
        ({"datastream_files_format": "jsonl.gz"}, {"datastream_files_format": "jsonl.gz"}),
        (
            {"sinks": "topic", "ordered_topic": "x", "ordered_topic_order": "key"}
            | {"ordered_topic_partitions": 3},
            {"ordered_topic": "x", "ordered_topic_partitions": 3},
        ),

        (
            {"sinks": "iceberg_mirror", "iceberg_catalog": "lake", "iceberg_namespace": "raw.b"},
            {
                "iceberg_catalog": "lake", "iceberg_namespace": "raw.b", "has_iceberg": True,
                "session_packages": f"{SPARK_PACKAGES},{ICEBERG_PACKAGES}",
            },
        ),
        ({"sinks": "iceberg_mirror", "packages": ""}, {"session_packages": ""}),
        (
            {"sinks": "iceberg_changelog", "packages": "org:iceberg-spark-runtime-4.0_2.13:2.0.0"},
            {"session_packages": "org:iceberg-spark-runtime-4.0_2.13:2.0.0"},
        ),
        (
            {"mirror_accepts": "exclude_delete, exclude_ttl_deletes"},
            {"accepted_exclusions": ("exclude_delete", "exclude_ttl_deletes")},
        ),
        *(
            ({"catalog_schema": schema}, {"catalog_schema": schema})
            for schema in ("bank", "unity.lake.bank_2")
        ),
        # By default small files are rewritten and nothing is deleted.
        (
            {},
            {
                "compact_files_min": 32, "target_file_bytes": 32 * 1024**2,
                "vacuum_retention_hours": 0, "table_properties": {}, "mirror_partition_by": {},
                "ordered_topic_timeout_ms": 300_000, "accepted_exclusions": (),
                "datastream_files_format": "avro", "until": "", "metrics_port": 0,
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_settings_give_the_query_its_sinks_packages_and_names(changes, expected):
    config = load(**changes)
    assert {name: getattr(config, name) for name in expected} == expected


def test_secrets_are_never_printed(file):
    path = file('registry_user_info = "me:secret"\n[kafka_options]\nsasl.password = "secret"\n')
    config = load(path)
    assert config.kafka_client_options() == {"sasl.password": "secret"}
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "secret" not in shown


def test_names_with_dots_need_no_quotes_and_values_are_text(file):
    config = load(
        file(
            "[table_properties]\ndelta.enableDeletionVectors = true\n"
            '"delta.logRetentionDuration" = "interval 7 days"\n'
            '[mirror_partition_by]\naccounts = "region"\nsales.orders = "country, year"\n'
        )
    )
    assert config.table_properties == {
        "delta.enableDeletionVectors": "true",
        "delta.logRetentionDuration": "interval 7 days",
    }
    assert config.mirror_partition_by == {"accounts": "region", "sales.orders": "country, year"}
    assert column_names(" country, year ,") == ("country", "year")
