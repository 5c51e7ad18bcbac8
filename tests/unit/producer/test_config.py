"""Settings: where they come from, which wins, and that all faults are reported together."""

import os
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.query_scheduler import OPEN_QUERIES_MAX
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import TimestampForm

REQUIRED = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081",
    "project": "p",
    "instance": "inst",
    "database": "my_db",
    "change_stream": "Everything",
    "prefix": "bank",
}


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TIDEGATE_PRODUCER_") or name == "SPANNER_EMULATOR_HOST":
            monkeypatch.delenv(name)


def load(file=None, **changes):
    return ProducerConfig.load(file, **{**REQUIRED, **changes})


def faults(**changes):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults():
    config = load()
    assert config.slots == 16
    assert config.open_queries_max == OPEN_QUERIES_MAX
    assert config.end_ns is None
    assert config.worker
    assert config.database_path == "projects/p/instances/inst/databases/my_db"
    assert config.stream_path == config.database_path + "/changeStreams/Everything"
    assert config.registry_client_options() == {}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    file = tmp_path / "producer.toml"
    file.write_text(
        'slots = 3\nheartbeat_ms = 300\nlog_level = "debug"\n[kafka_options]\na = "1"\n'
    )
    monkeypatch.setenv("TIDEGATE_PRODUCER_HEARTBEAT_MS", "400")
    monkeypatch.setenv("TIDEGATE_PRODUCER_LOG_LEVEL", "warning")
    config = load(file, log_level="error", commit_interval_ms=None)
    assert (config.slots, config.heartbeat_ms, config.log_level) == (3, 400, "error")
    assert config.commit_interval_ms == 250
    assert config.kafka_client_options() == {"a": "1"}


def test_everything_may_come_from_the_environment(monkeypatch):
    for name, value in REQUIRED.items():
        monkeypatch.setenv(f"TIDEGATE_PRODUCER_{name.upper()}", value)
    monkeypatch.setenv("TIDEGATE_PRODUCER_KAFKA_OPTIONS", '{"sasl.password": "hush"}')
    config = ProducerConfig.load()
    assert config.database == "my_db"
    assert config.kafka_client_options() == {"sasl.password": "hush"}


def test_it_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        load().slots = 4


def test_all_faults_are_reported_together(tmp_path, monkeypatch):
    file = tmp_path / "producer.toml"
    file.write_text("slotz = 3\n")
    monkeypatch.setenv("TIDEGATE_PRODUCER_WROKER", "a")
    text = faults(file=file, heartbeat_ms=5, prefix="..", instance=None, start="soon")
    for name in ("slotz", "TIDEGATE_PRODUCER_WROKER", "heartbeat_ms", "prefix", "start"):
        assert name in text
    assert "instance: is not set (flag --instance, variable TIDEGATE_PRODUCER_INSTANCE" in text


@pytest.mark.rule("spanner-heartbeat-interval")
def test_a_heartbeat_interval_that_spanner_refuses_is_refused():
    for taken in (100, 1_000, 300_000):
        assert load(heartbeat_ms=taken).heartbeat_ms == taken
    for other in (99, 300_001):
        assert "heartbeat_ms" in faults(heartbeat_ms=other)


def test_a_missing_setting_says_how_to_give_it():
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.load()
    text = str(caught.value)
    assert text.count("is not set") == len(REQUIRED)
    assert "--change-stream" in text
    assert "TIDEGATE_PRODUCER_CHANGE_STREAM" in text


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"registry_url": "localhost:8081"}, "registry_url"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"change_stream": "a-b"}, "change_stream"),
        ({"worker": "a b"}, "worker"),
        ({"slots": 0}, "slots"),
        ({"slots": "many"}, "slots"),
        ({"end": "2026-13-01T00:00:00Z"}, "end"),
        ({"end": "9999-12-31T23:59:59Z"}, "end"),
        ({"start": "1969-12-31T23:59:59Z"}, "start"),
        ({"start": "0001-01-01T00:00:00+23:59"}, "start"),
        ({"registry_url": "http://127.0.0.1:65536"}, "registry_url"),
        ({"registry_url": "http://127.0.0.1:port"}, "registry_url"),
        ({"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "end"),
        ({"transaction_timeout_ms": 1000, "commit_interval_ms": 1000}, "transaction_timeout_ms"),
        ({"kafka_options": {"transactional.id": "x"}}, "transactional.id"),
        ({"log_level": "loud"}, "log_level"),
        ({"metrics_port": 70000}, "metrics_port"),
        ({"heart_beat": 5}, "heart_beat"),
        ({"spanner_endpoint": "https://spanner.googleapis.com"}, "spanner_endpoint"),
        ({"rpc_priority": "urgent"}, "rpc_priority"),
        ({"request_tag": "a\nb"}, "request_tag"),
        ({"request_tag": "x" * 51}, "request_tag"),
        ({"directed_reads": "us-east4:ANY"}, "directed_reads"),
    ],
)
def test_a_fault_names_its_setting(changes, word):
    assert word in faults(**changes)


@pytest.mark.parametrize(
    "option",
    [
        "delivery.report.only.error", "enable.idempotence", "transactional.id", "partitioner",
        "enable.auto.commit", "auto.commit.interval.ms", "isolation.level", "auto.offset.reset",
        "group.id", "group.protocol", "group.instance.id", "acks", "request.required.acks",
        "message.timeout.ms", "queuing.strategy", "topic.blacklist", "enable.partition.eof",
        "test.mock.num.brokers",
    ],
)  # fmt: skip
def test_an_option_that_the_protocol_fixes_is_refused_by_name(option):
    reported = faults(kafka_options={option: "x", "linger.ms": "7"})
    assert f"kafka_options: {option}: " in reported
    assert "linger.ms" not in reported


def test_replicas_keep_their_order():
    config = load(directed_reads="us-east4:READ_ONLY, us-west2")
    assert config.replicas == (("us-east4", "READ_ONLY"), ("us-west2", ""))
    assert load().replicas == ()


def test_a_file_that_is_missing_or_no_toml_is_reported(tmp_path):
    assert "does not exist" in faults(file=tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("= 5")
    assert "cannot be read" in faults(file=broken)


def test_secrets_are_never_printed(monkeypatch):
    config = load(registry_user_info="me:hush", kafka_options={"sasl.password": "hush"})
    assert "hush" not in repr(config)
    assert "hush" not in str(config)
    assert "hush" not in config.model_dump_json()
    assert config.registry_client_options() == {"basic.auth.user.info": "me:hush"}
    assert "hush" not in faults(kafka_options={"sasl.password": "hush", "acks": "1"})
    monkeypatch.setenv("TIDEGATE_PRODUCER_KAFKA_OPTIONS", "hush")
    assert "hush" not in faults()


def test_instants():
    config = load(start="2026-01-01T00:00:00.000000001Z", end="2026-01-01T00:00:01Z")
    assert config.start_ns() == 1_767_225_600_000_000_001
    assert config.end_ns == 1_767_225_601_000_000_000
    now = datetime(2026, 1, 1, microsecond=7, tzinfo=UTC)
    assert load().start_ns(now=now) == 1_767_225_600_000_007_000


def test_the_emulators_address_is_taken_from_the_usual_variable(monkeypatch):
    assert load().emulator_host == ""
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:9010")
    assert load().emulator_host == "127.0.0.1:9010"
    assert load(spanner_emulator_host="127.0.0.1:1").emulator_host == "127.0.0.1:1"


def test_the_limit_of_the_drift_leaves_room_for_heartbeats():
    assert load().drift_ms_max == 0
    assert load(drift_ms_max=10_000, heartbeat_ms=1_000).drift_ms_max == 10_000
    assert "drift_ms_max: must be 0 or at least" in faults(drift_ms_max=9_999, heartbeat_ms=1_000)


def test_timestamps_as_text_need_progress_records_that_hold_their_form():
    assert load().timestamp_form is TimestampForm.MICROS
    assert load(timestamps="string").timestamp_form is TimestampForm.STRING
    assert "micros" in faults(timestamps="nanos")
    expected = 'timestamps: "string" needs progress_version 2'
    assert expected in faults(timestamps="string", progress_version=1)


def test_json_needs_an_envelope_that_is_made_for_it():
    assert load(envelope="debezium").value_format == "avro"
    assert load(envelope="datastream", value_format="json").value_format == "json"
    expected = 'value_format: "json" needs envelope "debezium" or "datastream"; this one is "flat"'
    assert expected in faults(envelope="flat", value_format="json")
    assert 'this one is "tidegate"' in faults(value_format="json")
    assert "datastream" in faults(envelope="other")


def test_keys_are_json_only_beside_debeziums_values_in_json():
    both = {"envelope": "debezium", "value_format": "json"}
    assert load(**both).key_format == "avro"
    assert load(**both, key_format="json").key_format == "json"
    expected = 'key_format: "json" needs envelope "debezium" and value_format "json"; these are '
    assert f'{expected}"debezium" and "avro"' in faults(envelope="debezium", key_format="json")
    assert f'{expected}"datastream" and "json"' in faults(
        envelope="datastream", value_format="json", key_format="json"
    )
    assert "key_format" in faults(**both, key_format="json_schema")


def test_parking_needs_progress_records_that_hold_parked_keys():
    assert load().poison == "stop"
    assert load(poison="park").poison == "park"
    assert load(poison="stop", progress_version=1).progress_version == 1
    assert "poison" in faults(poison="skip")
    assert 'poison: "park" needs progress_version 2' in faults(poison="park", progress_version=1)
