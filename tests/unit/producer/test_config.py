"""Settings: where they come from, which wins, and that all faults are reported together."""

import os
import sys
from types import ModuleType

import pytest

from tidegate.producer import accelerator
from tidegate.producer.config import DISCOVER_FLAGS, DiscoverConfig, FleetConfig, ProducerConfig
from tidegate.producer.core.partition_index import OPEN_QUERIES_MAX
from tidegate.program.settings import InvalidSettings
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import TimestampForm

KAFKA = {
    "bootstrap_servers": "127.0.0.1:9092", "registry_url": "http://127.0.0.1:8081",
    "prefix": "bank",
}  # fmt: skip
DATABASE = {"project": "p", "instance": "inst", "database": "my_db"}
REQUIRED = {**KAFKA, **DATABASE, "change_stream": "Everything"}
FILES = {"kind": "datastream", "location": "gs://bucket/path/"}
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TIDEGATE_PRODUCER_") or name == "SPANNER_EMULATOR_HOST":
            monkeypatch.delenv(name)


def load(file=None, **changes):
    return ProducerConfig.load(file, **{**REQUIRED, **changes})


def of_files(source, **more):
    return ProducerConfig.load(None, **KAFKA, source=source, **more)


def faults(load=load, *arguments, **changes):
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **changes)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults():
    config = load()
    assert (config.slots, config.open_queries_max) == (16, OPEN_QUERIES_MAX)
    assert (config.end_ns, config.plaintext_host, config.poison) == (None, "", "stop")
    assert config.worker
    assert config.database_path == "projects/p/instances/inst/databases/my_db"
    assert config.stream_path == config.database_path + "/changeStreams/Everything"
    assert (config.registry_client_options(), config.replicas, config.files) == ({}, (), None)
    assert (config.drift_ms_max, config.timestamp_form) == (0, TimestampForm.MICROS)


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
    for name, value in REQUIRED.items():
        monkeypatch.setenv(f"TIDEGATE_PRODUCER_{name.upper()}", value)
    monkeypatch.setenv("TIDEGATE_PRODUCER_KAFKA_OPTIONS", '{"sasl.password": "hush"}')
    config = ProducerConfig.load()
    assert config.database == "my_db"
    assert config.kafka_client_options() == {"sasl.password": "hush"}


def test_all_faults_are_reported_together(tmp_path, monkeypatch):
    file = tmp_path / "producer.toml"
    file.write_text("slotz = 3\n")
    monkeypatch.setenv("TIDEGATE_PRODUCER_WROKER", "a")
    text = faults(file=file, heartbeat_ms=5, prefix="..", instance=None, start="soon")
    for name in ("slotz", "TIDEGATE_PRODUCER_WROKER", "heartbeat_ms", "prefix", "start"):
        assert name in text
    assert "instance: is not set (flag --instance, variable TIDEGATE_PRODUCER_INSTANCE" in text
    text = faults(ProducerConfig.load)
    assert text.count("is not set") == len(REQUIRED)
    assert "--change-stream" in text
    assert "TIDEGATE_PRODUCER_CHANGE_STREAM" in text


@pytest.mark.rule("spanner-heartbeat-interval")
def test_a_heartbeat_interval_that_spanner_refuses_is_refused():
    for taken in (100, 1_000, 300_000):
        assert load(heartbeat_ms=taken).heartbeat_ms == taken
    for other in (99, 300_001):
        assert "heartbeat_ms" in faults(heartbeat_ms=other)


BOTH_IN_JSON = {"envelope": "debezium", "value_format": "json"}
NEEDS_DEBEZIUM = 'key_format: "json" needs envelope "debezium" and value_format "json"; these are '


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"registry_url": "localhost:8081"}, "registry_url"), ({"slots": 0}, "slots"),
        ({"registry_url": "http://127.0.0.1:65536"}, "registry_url"),
        ({"registry_url": "http://127.0.0.1:port"}, "registry_url"), ({"slots": "many"}, "slots"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"), ({"worker": "a b"}, "worker"),
        ({"change_stream": "a-b"}, "change_stream"), ({"end": "2026-13-01T00:00:00Z"}, "end"),
        ({"change_stream": ""}, "change_stream: '' is not a valid name"),
        ({"end": "9999-12-31T23:59:59Z"}, "end"), ({"start": "1969-12-31T23:59:59Z"}, "start"),
        ({"start": "0001-01-01T00:00:00+23:59"}, "start"),
        ({"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "end"),
        ({"transaction_timeout_ms": 1000, "commit_interval_ms": 1000}, "transaction_timeout_ms"),
        ({"kafka_options": {"transactional.id": "x"}}, "transactional.id"),
        ({"log_level": "loud"}, "log_level"), ({"metrics_port": 70000}, "metrics_port"),
        ({"heart_beat": 5}, "heart_beat"), ({"rpc_priority": "urgent"}, "rpc_priority"),
        ({"spanner_endpoint": "https://spanner.googleapis.com"}, "spanner_endpoint"),
        ({"spanner_endpoint": "http://omni"}, "spanner_endpoint"),
        ({"spanner_client_cert": "a.pem"}, "spanner_client_cert: it and spanner_client_key need"),
        ({"spanner_client_key": "a.pem"}, "spanner_client_cert: it and spanner_client_key need"),
        ({"spanner_endpoint": "http://omni:15000", "spanner_ca_file": "ca.pem"},
         "spanner_endpoint: http:// is plaintext"),
        ({"request_tag": "a\nb"}, "request_tag"), ({"request_tag": "x" * 51}, "request_tag"),
        ({"directed_reads": "us-east4:ANY"}, "directed_reads"), ({"poison": "skip"}, "poison"),
        ({"drift_ms_max": 9_999, "heartbeat_ms": 1_000}, "drift_ms_max: must be 0 or at least"),
        ({"timestamps": "nanos"}, "micros"),
        ({"timestamps": "string", "progress_version": 1},
         'timestamps: "string" needs progress_version 2'),
        ({"poison": "park", "progress_version": 1}, 'poison: "park" needs progress_version 2'),
        ({"envelope": "flat", "value_format": "json"},
         'value_format: "json" needs envelope "debezium" or "datastream"; this one is "flat"'),
        ({"value_format": "json"}, 'this one is "tidegate"'), ({"envelope": "other"}, "datastream"),
        ({"envelope": "debezium", "key_format": "json"}, f'{NEEDS_DEBEZIUM}"debezium" and "avro"'),
        ({"envelope": "datastream", "value_format": "json", "key_format": "json"},
         f'{NEEDS_DEBEZIUM}"datastream" and "json"'),
        ({**BOTH_IN_JSON, "key_format": "json_schema"}, "key_format"),
    ],
)  # fmt: skip
def test_a_fault_names_its_setting(changes, word):
    assert word in faults(**changes)


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"directed_reads": "us-east4:READ_ONLY, us-west2"}, "replicas",
         (("us-east4", "READ_ONLY"), ("us-west2", ""))),
        ({"drift_ms_max": 10_000, "heartbeat_ms": 1_000}, "drift_ms_max", 10_000),
        ({"timestamps": "string"}, "timestamp_form", TimestampForm.STRING),
        ({"envelope": "debezium"}, "value_format", "avro"),
        ({"envelope": "datastream", "value_format": "json"}, "value_format", "json"),
        (BOTH_IN_JSON, "key_format", "avro"),
        ({**BOTH_IN_JSON, "key_format": "json"}, "key_format", "json"),
        ({"poison": "park"}, "poison", "park"),
        ({"poison": "stop", "progress_version": 1}, "progress_version", 1),
        ({"source": {"kind": "spanner"}}, "files", None),
    ],
)  # fmt: skip
def test_a_setting_is_taken(changes, name, value):
    assert getattr(load(**changes), name) == value


def test_an_option_that_the_protocol_fixes_is_refused_by_name():
    """The guarantees rest on these."""
    named = {
        "delivery.report.only.error", "enable.idempotence", "transactional.id", "partitioner",
        "enable.auto.commit", "auto.commit.interval.ms", "isolation.level", "auto.offset.reset",
        "group.id", "group.protocol", "group.instance.id", "acks", "request.required.acks",
        "message.timeout.ms", "queuing.strategy", "topic.blacklist", "enable.partition.eof",
        "test.mock.num.brokers",
    }  # fmt: skip
    for option in sorted(
        named | {name.replace("*", "x") for name in ProducerConfig.owned_kafka_options}
    ):
        reported = faults(kafka_options={option: "x", "linger.ms": "7"})
        assert f"kafka_options: {option}: the guarantees rest on these" in reported
        assert "linger.ms" not in reported


def test_a_file_that_is_missing_or_no_toml_is_reported(tmp_path):
    assert "does not exist" in faults(file=tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("= 5")
    assert "cannot be read" in faults(file=broken)


def test_secrets_are_never_printed(monkeypatch):
    config = load(registry_user_info="me:hush", kafka_options={"sasl.password": "hush"})
    assert "hush" not in repr(config) + str(config) + config.model_dump_json()
    assert config.registry_client_options() == {"basic.auth.user.info": "me:hush"}
    assert "hush" not in faults(kafka_options={"sasl.password": "hush", "acks": "1"})
    monkeypatch.setenv("TIDEGATE_PRODUCER_KAFKA_OPTIONS", "hush")
    assert "hush" not in faults()


def test_instants():
    config = load(start="2026-01-01T00:00:00.000000001Z", end="2026-01-01T00:00:01Z")
    assert config.start_ns == 1_767_225_600_000_000_001
    assert config.end_ns == 1_767_225_601_000_000_000
    assert (load().start_ns, load().end_ns) == (None, None)


def test_the_emulators_address_is_taken_from_the_usual_variable(monkeypatch):
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:9010")
    assert load().plaintext_host == "127.0.0.1:9010"
    assert load(spanner_emulator_host="127.0.0.1:1").plaintext_host == "127.0.0.1:1"
    monkeypatch.delenv("SPANNER_EMULATOR_HOST")
    assert load(spanner_endpoint="http://omni:15000").plaintext_host == "omni:15000"
    assert load(spanner_endpoint="omni:15000").plaintext_host == ""


def test_files_need_no_setting_of_spanner(tmp_path):
    config = of_files(FILES)
    assert config.files.location == "gs://bucket/path/"
    assert config.stream_path == "datastream/gs://bucket/path"
    assert (config.files.open_minutes, config.files.lateness_seconds) == (10, 600)
    assert of_files(FILES, columns_left_out="*._datastream_u*, bank.accounts.order").files


def test_a_table_may_have_a_key_and_a_backfill(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(
        '[source]\nkind = "datastream"\nlocation = "/data"\nkeys = {"HR.JOBS" = ["ID"]}\n'
        "poll_seconds = 3\n"
        '[source.backfills."HR.JOBS"]\nsince = "2030-01-31T12:00:00Z"\nlog = 29641\n'
    )
    found = ProducerConfig.load(file, **KAFKA).files
    assert (found.keys, found.poll_seconds) == ({"HR.JOBS": ["ID"]}, 3)
    assert found.backfills["HR.JOBS"].since_us == 1_896_091_200_000_000
    assert found.backfills["HR.JOBS"].log == "29641"


def test_servers_of_mysql_may_follow_one_another():
    servers = [SERVER.upper(), SERVER.replace("3e", "4f"), f"{SERVER}:101"]
    assert of_files({**FILES, "servers": servers}).files.servers == [
        server.lower() for server in servers
    ]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"kind": "datastream", "location": None}, "location is not set"),
        ({"pol_seconds": 3}, "pol_seconds is not known: kind, location"),
        (
            {"backfills": {"a.b": {"since": "2030-01-31T12:00:00Z", "lgo": "1"}}},
            "backfills.a.b.lgo is not known: since, log",
        ),
        ({"open_minutes": 0}, "open_minutes"),
        ({"keys": {"HR.JOBS": []}}, "keys: Value error, HR.JOBS must have columns"),
        ({"keys": {"HR.JOBS": ["ID", "ID"]}}, "each of them once"),
        ({"servers": ["mysql-bin"]}, "'mysql-bin' must be the UUID of a server"),
        ({"servers": [SERVER, SERVER.upper()]}, "must be a later GTID"),
        ({"servers": [f"{SERVER}:9", f"{SERVER}:9"]}, "must be a later GTID"),
        ({"servers": [f"{SERVER}:{n}" for n in range(17)]}, "servers: List should have"),
        ({"backfills": {"shop.orders": {}}}, "backfills.shop.orders.since is not set"),
        ({"backfills": {"a.b": {"since": "now"}}}, "must be a time such as 2030-01-31T"),
        ({"lateness_seconds": 601}, "lateness_seconds 601 is more than open_minutes 10"),
    ],
)
def test_faults_of_a_source_of_files(source, text):
    whole = {name: value for name, value in {**FILES, **source}.items() if value is not None}
    assert text in faults(of_files, whole)
    kinds = 'source: kind must be "spanner" or "datastream"'
    assert kinds in faults(source={"kind": "kinesis"})
    assert "takes no other name" in faults(source={"kind": "spanner", "location": "x"})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("project", "p"), ("database", "d"), ("envelope", "debezium"), ("tombstones", True),
        ("backfill", "*"), ("end", "2030-01-01T00:00:00Z"), ("progress_version", 1),
        ("columns_left_out", "*._datastream_*"),
        ("columns_left_out", "bank.accounts._DATASTREAM_ORDER"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_files_is_named(setting, value):
    assert setting in faults(of_files, FILES, **{setting: value})


def test_defaults_go_with_files_also_in_variables(monkeypatch):
    for name, value in (("TOMBSTONES", "false"), ("ENVELOPE", "tidegate"), ("BACKFILL", "")):
        monkeypatch.setenv(f"TIDEGATE_PRODUCER_{name}", value)
    assert not of_files(FILES).tombstones
    monkeypatch.setenv("TIDEGATE_PRODUCER_TOMBSTONES", "true")
    assert "tombstones: cannot be True" in faults(of_files, FILES)


def test_a_command_that_reads_the_fleet_needs_no_source():
    text = faults(ProducerConfig.load, None, **KAFKA)
    names = sorted(REQUIRED.keys() - KAFKA.keys())
    assert [name for name in names if f"{name}: is not set" not in text] == []
    assert not FleetConfig.load(None, **KAFKA).names_source
    assert not FleetConfig.load(None, **KAFKA, database="my_db").names_source
    whole = FleetConfig.load(None, **REQUIRED)
    assert whole.names_source
    assert whole.stream_path == load().stream_path
    assert FleetConfig.load(None, **KAFKA, source=FILES).names_source
    for name in names:
        assert "not a valid name" in faults(FleetConfig.load, None, **{**REQUIRED, name: "!"})
        assert "not a valid name" in faults(**{name: ""})


def test_discover_needs_a_database_and_takes_the_file_of_a_worker(tmp_path):
    found = DiscoverConfig.load(None, **DATABASE)
    assert found.database_path == "projects/p/instances/inst/databases/my_db"
    assert found.change_stream == ""
    file = tmp_path / "producer.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in REQUIRED.items()))
    with file.open("a") as more:
        more.write('tables = "a, b"\n')
    assert DiscoverConfig.load(file).change_stream == "Everything"
    ProducerConfig.load(file)
    assert set(DISCOVER_FLAGS) <= set(DiscoverConfig.model_fields)
    with pytest.raises(InvalidSettings) as caught:
        DiscoverConfig.load(None, change_stream="1x", project="p")
    for text in (
        "instance: is not set (flag --instance", "database: is not set",
        "change_stream: '1x' is not a valid name", "`tidegate-producer discover --help`",
    ):  # fmt: skip
        assert text in str(caught.value)
    with pytest.raises(InvalidSettings, match="instance: '' is not a valid name"):
        DiscoverConfig.load(None, **{**DATABASE, "instance": ""})


@pytest.mark.parametrize(
    ("interface", "environment", "expected"),
    [(0, {}, "used"), (0, {"TIDEGATE_ACCELERATOR": "OFF"}, "turned off"),
     (-1, {}, "another version"), (None, {}, "not installed")],
)  # fmt: skip
def test_the_accelerator_is_used_where_it_is_installed(
    monkeypatch, interface, environment, expected
):
    module = None
    if interface is not None:
        module = ModuleType("tidegate_accelerator")
        module.INTERFACE = accelerator._INTERFACE + interface
    monkeypatch.setitem(sys.modules, "tidegate_accelerator", module)
    assert accelerator._load(environment) == (module if expected == "used" else None, expected)
    used = accelerator.accelerator() is not None
    assert (accelerator.describe_accelerator() == "used") == used
