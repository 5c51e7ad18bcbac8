"""Settings: what is needed, what is refused, and that all faults are reported together."""

import os

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES, ConsumerConfig

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


def test_defaults_do_for_what_is_not_needed():
    config = load()
    assert config.prefix == "bank"
    assert config.until == ""
    assert config.metrics_port == 0
    assert config.kafka_client_options() == {}
    assert config.registry_client_options() == {}


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


def test_a_password_in_a_url_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        load(registry_url="ftp://user:secret@host")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "error_text"),
    [
        ("isolation.level", "the guarantees rest on these"),
        ("group.id", "the guarantees rest on these"),
        ("socket.timeout.ms", "not an option that the consumer can give"),
        ("sasl.jaas.config", "not an option that the consumer can give"),
    ],
)
def test_options_that_would_be_dropped_or_break_promises_are_refused(name, error_text):
    with pytest.raises(ConfigError) as caught:
        load(kafka_options={name: "secret"})
    assert f"kafka_options: {name}: {error_text}" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_secrets_are_never_printed(file):
    path = file('registry_user_info = "me:secret"\n[kafka_options]\nsasl.password = "secret"\n')
    config = load(path)
    assert config.kafka_client_options() == {"sasl.password": "secret"}
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "secret" not in shown


def test_sinks_are_named_once_each_and_have_an_order_of_their_own():
    assert load().sink_names == ("changelog", "mirror")
    assert load(sinks=" mirror , changelog ").sink_names == ("changelog", "mirror")
    assert load(sinks="mirror").sink_names == ("mirror",)
    with pytest.raises(
        ConfigError,
        match="'hive': not one of changelog, mirror, history, parquet, iceberg_changelog",
    ):
        load(sinks="changelog,hive")
    for text in ("", " , ", "mirror,mirror"):
        with pytest.raises(ConfigError, match="once at most"):
            load(sinks=text)


def test_files_as_datastream_writes_them_have_three_forms_and_bounds():
    assert load(sinks="datastream_files").datastream_files_format == "avro"
    assert load(datastream_files_format="jsonl.gz").datastream_files_format == "jsonl.gz"
    for wrong in ({"format": "parquet"}, {"rows_max": 0}, {"bytes_max": 0}, {"bytes_max": 2**29}):
        ((name, value),) = wrong.items()
        with pytest.raises(ConfigError, match=f"datastream_files_{name}"):
            load(**{f"datastream_files_{name}": value})


def test_the_ordered_topic_and_its_sink_belong_together():
    assert load(sinks="topic", ordered_topic="bank-ordered").ordered_topic == "bank-ordered"
    with pytest.raises(ConfigError, match=r"ordered_topic.*needs the name of a topic"):
        load(sinks="changelog,topic")
    with pytest.raises(ConfigError, match=r"ordered_topic.*add it to sinks"):
        load(ordered_topic="bank-ordered")
    named = {"sinks": "topic", "ordered_topic": "bank-ordered", "ordered_topic_partitions": 3}
    assert load(**named, ordered_topic_order="key").ordered_topic_partitions == 3
    with pytest.raises(ConfigError, match=r"ordered_topic_partitions.*a total order has one"):
        load(**named)


def test_a_release_may_take_longer_to_publish():
    assert load().ordered_topic_timeout_ms == 300_000
    assert load(ordered_topic_timeout_ms=900_000).ordered_topic_timeout_ms == 900_000
    for wrong in (9_999, 2**31):
        with pytest.raises(ConfigError, match="ordered_topic_timeout_ms"):
            load(ordered_topic_timeout_ms=wrong)


def test_iceberg_tables_have_a_place_of_their_own_and_bring_their_package():
    config = load(sinks="iceberg_mirror", iceberg_catalog="lake", iceberg_namespace="raw.bank")
    assert (config.iceberg_catalog, config.iceberg_namespace) == ("lake", "raw.bank")
    assert config.has_iceberg
    assert config.session_packages == f"{SPARK_PACKAGES},{ICEBERG_PACKAGES}"
    assert load().session_packages == SPARK_PACKAGES
    assert load(sinks="iceberg_mirror", packages="").session_packages == ""
    own = "org.example:iceberg-spark-runtime-4.0_2.13:2.0.0"
    assert load(sinks="iceberg_changelog", packages=own).session_packages == own
    for name, value in (("iceberg_catalog", "lake"), ("iceberg_namespace", "bank")):
        with pytest.raises(ConfigError, match=rf"{name}.*add one to sinks"):
            load(**{name: value})
    for name, value in (("iceberg_catalog", "a.b"), ("iceberg_namespace", "a..b")):
        with pytest.raises(ConfigError, match=name):
            load(sinks="iceberg_mirror", **{name: value})


def test_exclusions_that_mirrors_accept_are_options_of_a_change_stream():
    assert load().accepted_exclusions == ()
    config = load(mirror_accepts="exclude_delete, exclude_ttl_deletes")
    assert config.accepted_exclusions == ("exclude_delete", "exclude_ttl_deletes")
    with pytest.raises(ConfigError, match="'exclude_everything': not one of"):
        load(mirror_accepts="exclude_delete,exclude_everything")
    with pytest.raises(ConfigError, match=r"udc80"):
        load(mirror_accepts="\udc80")


@pytest.mark.parametrize("schema", ["bank", "lake.bank", "unity.lake.bank_2"])
def test_tables_are_registered_in_a_schema_or_none(schema):
    assert load().catalog_schema == ""
    assert load(catalog_schema=schema).catalog_schema == schema


@pytest.mark.parametrize("schema", ["lake.", ".bank", "/lake", "my-bank", "a b", "`bank`"])
def test_what_is_no_name_of_a_schema_is_refused(schema):
    with pytest.raises(ConfigError, match=r"catalog_schema: .* not the name of a schema"):
        load(catalog_schema=schema)
