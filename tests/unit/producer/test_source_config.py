"""The table `[source]`: what it reads, and that every fault names the setting and the fix."""

import pytest

from tests.unit.producer.test_config import REQUIRED
from tidegate.producer.config import ProducerConfig
from tidegate.producer.source_config import files_source
from tidegate.schemas.errors import ConfigError

KAFKA = {name: REQUIRED[name] for name in ("bootstrap_servers", "registry_url", "prefix")}
FILES = {"kind": "datastream", "location": "gs://bucket/path/"}


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch):
    for name in ("PROJECT", "INSTANCE", "DATABASE", "CHANGE_STREAM", "SOURCE"):
        monkeypatch.delenv(f"TIDEGATE_PRODUCER_{name}", raising=False)


def load(source, **more):
    return ProducerConfig.load(None, **KAFKA, source=source, **more)


def faults(source, **more):
    with pytest.raises(ConfigError) as caught:
        load(source, **more)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_files_need_no_setting_of_spanner(tmp_path):
    config = load(FILES)
    assert config.files.location == "gs://bucket/path/"
    assert config.stream_path == "datastream/gs://bucket/path"
    assert (config.files.open_minutes, config.files.lateness_seconds) == (10, 600)
    file = tmp_path / "a.toml"
    file.write_text('[source]\nkind = "datastream"\nlocation = "/data"\npoll_seconds = 3\n')
    assert ProducerConfig.load(file, **KAFKA).files.poll_seconds == 3


SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_servers_of_mysql_may_follow_one_another():
    servers = [SERVER.upper(), SERVER.replace("3e", "4f"), f"{SERVER}:101"]
    found = load({**FILES, "servers": servers}).files
    assert found.servers == [one.lower() for one in servers]


def test_a_table_may_have_a_key_and_a_backfill(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(
        '[source]\nkind = "datastream"\nlocation = "/data"\nkeys = {"HR.JOBS" = ["ID"]}\n'
        '[source.backfills."HR.JOBS"]\nsince = "2030-01-31T12:00:00Z"\nlog = 29641\n'
    )
    found = ProducerConfig.load(file, **KAFKA).files
    assert found.keys == {"HR.JOBS": ["ID"]}
    assert found.backfills["HR.JOBS"].since_us == 1_896_091_200_000_000
    assert found.backfills["HR.JOBS"].log == "29641"


def test_without_the_table_or_with_spanner_nothing_is_different():
    assert ProducerConfig.load(None, **REQUIRED).files is None
    assert ProducerConfig.load(None, **REQUIRED, source={"kind": "spanner"}).files is None
    assert files_source({}) is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"kind": "kinesis"}, 'source: kind must be "spanner" or "datastream"'),
        ({"kind": "spanner", "location": "x"}, "takes no other name"),
        ({"kind": "datastream"}, "location is not set"),
        ({**FILES, "pol_seconds": 3}, "pol_seconds is not known"),
        ({**FILES, "open_minutes": 0}, "open_minutes"),
        ({**FILES, "keys": {"HR.JOBS": []}}, "keys: Value error, HR.JOBS must have columns"),
        ({**FILES, "keys": {"HR.JOBS": ["ID", "ID"]}}, "each of them once"),
        ({**FILES, "servers": ["mysql-bin"]}, "'mysql-bin' must be the UUID of a server"),
        ({**FILES, "servers": [SERVER, SERVER.upper()]}, "must be a later GTID"),
        ({**FILES, "servers": [f"{SERVER}:9", f"{SERVER}:9"]}, "must be a later GTID"),
        ({**FILES, "servers": [f"{SERVER}:{n}" for n in range(17)]}, "servers: List should have"),
        ({**FILES, "backfills": {"shop.orders": {}}}, "backfills.shop.orders.since is not set"),
        ({**FILES, "backfills": {"a.b": {"since": "now"}}}, "must be a time such as 2030-01-31T"),
        ({**FILES, "lateness_seconds": 601}, "lateness_seconds 601 is more than open_minutes 10"),
    ],
)
def test_faults_of_the_table(source, text):
    more = {} if source["kind"] == "datastream" else {n: REQUIRED[n] for n in REQUIRED}
    more = {name: value for name, value in more.items() if name not in KAFKA}
    assert text in faults(source, **more)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("project", "p"),
        ("database", "d"),
        ("envelope", "debezium"),
        ("tombstones", True),
        ("backfill", "*"),
        ("end", "2030-01-01T00:00:00Z"),
        ("progress_version", 1),
        ("columns_left_out", "*._datastream_*"),
        ("columns_left_out", "bank.accounts._DATASTREAM_ORDER"),
    ],
)
def test_what_does_not_go_with_files_is_named(setting, value):
    assert setting in faults(FILES, **{setting: value})


def test_columns_that_do_not_order_the_changes_can_be_left_out():
    assert load(FILES, columns_left_out="*._datastream_u*, bank.accounts.order").files is not None
