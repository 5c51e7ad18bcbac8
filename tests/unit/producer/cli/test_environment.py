"""What a worker checks before it creates anything, with the source that it opens."""

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError

from spanner_simulator import Simulator
from tests.unit.producer.cli.conftest import NOWHERE, started
from tidegate.producer.backfill.read_partition import ReadPartition, read_token
from tidegate.producer.cli import clients, environment
from tidegate.producer.cli.environment import find_environment
from tidegate.producer.cli.source import OpenedSource, open_files, open_spanner
from tidegate.producer.cli.stream_settings import (
    backfill_tables,
    filter_of,
    fixed_settings,
    require_backfill,
    require_mode,
    require_names,
)
from tidegate.producer.cli.worker_parts import Parts
from tidegate.producer.config import ProducerConfig
from tidegate.producer.datastream.table_settings import LaterBackfill, TableSettings
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.kafka import root_slot
from tidegate.producer.kafka.message_limits import KafkaMessageLimits
from tidegate.producer.spanner import channel
from tidegate.program import kafka_clients
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.progress import ChildPartition, DataTopic, ProgressRecord, TableAdded
from tidegate.schemas.tables import Column, ColumnType, TableSchema

LONG_AGO = "2001-01-01T00:00:00Z"
PATIENCE_S = 20.0
EMPTY_PARTS = Parts(**dict.fromkeys(field.name for field in fields(Parts)))
DASHED = "producer.topic_template={prefix}-{table}"


@pytest.fixture
def find(place):
    """Find the environment of changed settings; it is closed after the test."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(
            closing(find_environment(place.config(**changes)))
        )


@pytest.fixture
def record(place):
    record = started(place.config().stream_path)
    place.record(record)
    return record


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name == "readers"]


def test_what_answers_is_found_and_nothing_is_changed_or_runs_on(place, find):
    before = len(reading_threads())
    found = find()
    assert [table.name for table in found.source.description.tables] == ["Users"]
    assert found.topics.progress == "bank-progress"
    assert found.recorded is None
    assert found.source.catalogue.table("Users", stream=place.config().change_stream) is not None
    place.require_untouched()

    assert len(reading_threads()) == before + 1
    found.close()
    with pytest.raises(ConfigError):
        find_environment(place.config(start=LONG_AGO))
    assert len(reading_threads()) == before


def test_version_1_is_refused_where_keys_may_be_parked(place, find):
    assert not find(progress_version=1).has_dead_letter
    place.create_topic("bank-dead-letter")
    assert find().has_dead_letter
    with pytest.raises(ConfigError, match=r"progress_version 1.*bank-dead-letter"):
        find(progress_version=1)


def test_a_topic_with_the_progress_of_another_stream_is_refused(place, find):
    other = place.config(database="other").stream_path
    place.record(started(other))
    with pytest.raises(StreamChangedError, match=f"recorded '{other}', now .*Feed"):
        find()


def test_another_form_of_the_output_is_refused_before_anything_is_written(place, find, record):
    json = {"value_format": "json"}
    for setting, now in (
        ({"timestamps": "string"}, "timestamps: recorded 'micros', now 'string'"),
        ({"tombstones": True}, "tombstones: recorded 'false', now 'true'"),
        ({"envelope": "flat"}, "envelope: recorded 'tidegate', now 'flat'"),
        ({"envelope": "debezium", **json, "key_format": "json"},
         "value_format: recorded 'avro', now 'json'; key_format: recorded 'avro', now 'json'"),
        ({"topic_template": "{prefix}-{table}"}, "topic_template: recorded '.*', now '.*'"),
    ):  # fmt: skip
        with pytest.raises(StreamChangedError, match=now):
            find(**setting)
    place.require_untouched("bank-progress")


def test_the_recorded_template_counts_with_the_database_in_it(place, find):
    template = "{prefix}.{database}.{table}"
    config = place.config(topic_template=template)
    recorded = f"producer.topic_template={{prefix}}.{config.database}.{{table}}"
    assert fixed_settings(config) == (recorded,)
    place.record(started(config.stream_path, recorded))
    assert find(topic_template=template).topics.data("Users") == f"bank.{config.database}.Users"
    with pytest.raises(StreamChangedError, match=r"topic_template: recorded '.*', now '.*'"):
        find(topic_template="{prefix}.{table}")


def test_a_progress_topic_that_does_not_fit_the_settings_is_refused(
    place, find, record, monkeypatch
):
    with pytest.raises(ConfigError, match="topic bank-progress has 4, the setting says 16") as info:
        find(slots=16)
    assert "it can never change" in info.value.hint
    monkeypatch.setattr(KafkaMessageLimits, "bytes_max", lambda _limits, _topic: 500_000)
    with pytest.raises(ConfigError, match="takes messages of 500000 bytes at most"):
        find()


def test_a_prefix_or_template_that_takes_another_streams_topics_is_refused(place, find):
    place.create_topic("bank-eu-progress")
    with pytest.raises(ConfigError, match="'bank' and the prefix of another stream"):
        find(topic_template="{prefix}-{table}")
    assert place.registry.asked == []
    find()
    place.registry.asked.clear()
    place.create_topic("bank.eu-progress")
    with pytest.raises(ConfigError, match="'bank'"):
        find()
    assert place.registry.asked == []


def test_a_new_stream_whose_topics_another_ones_template_takes_is_refused(place, find):
    """Its prefix continues the other one's: only what the other stream has recorded says so."""
    place.record(started("s", DASHED), prefix="bank")
    config = place.config(prefix="bank-eu")
    with pytest.raises(ConfigError, match=r"'bank' and the prefix of another.*bank-eu-progress"):
        find(prefix="bank-eu")
    place.require_untouched("bank-progress")
    # It was there before the other one, which has checked it.
    place.record(started(config.stream_path), prefix="bank-eu")
    assert find(prefix="bank-eu").recorded is not None


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_new_stream_beside_one_with_the_default_names_is_taken(place, find, has_begun):
    if has_begun:
        place.record(started("s"))
    else:
        place.create_topic("bank-progress")
    for prefix in ("bank-eu", "bank_eu"):
        assert find(prefix=prefix).recorded is None


def test_a_new_stream_is_refused_where_the_other_ones_names_cannot_be_known(place, find):
    place.put("bank-progress", b"of another program")
    with pytest.raises(ConfigError, match="bank-progress, which cannot be read") as caught:
        find(prefix="bank-eu")
    assert "Use another prefix, or let this principal read" in caught.value.hint


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_that_cannot_be_read_is_refused_but_not_of_a_stream_that_runs(place, find):
    before_creation = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()
    for start, message in (
        (LONG_AGO, "changes before the stream's retention"),
        (before_creation, "before the stream's creation or retention"),
        ("2099-01-01T00:00:00Z", "later than now"),
    ):
        with pytest.raises(ConfigError, match=message):
            find(start=start)
    assert place.topics() == set()
    place.record(started(place.config().stream_path))
    assert find(start=LONG_AGO).source.channels is not None


@pytest.mark.rule("spanner-start-in-retention")
@pytest.mark.parametrize("year", [2003, 2103], ids=["fast", "slow"])
def test_a_start_is_compared_with_the_clock_of_the_service_and_not_with_ours(place, year):
    with Simulator(frozen_at=f"{year}-01-01T12:00:00Z") as simulator:
        stream = "CREATE CHANGE STREAM Feed FOR Users"
        table = "CREATE TABLE Users (Id INT64) PRIMARY KEY (Id)"
        simulator.create_database("other", ddl=[table, stream])
        simulator.advance(24 * 3_600_000)
        address = simulator.grpc_address

        def start_of(start):
            config = place.config(spanner_emulator_host=address, database="other", start=start)
            with closing(open_spanner(config, has_begun=False, has_dead_letter=False)) as source:
                return format_rfc3339(source.start_ns)

        assert start_of("now").startswith(f"{year}-01-02T12:00:00")
        for text in ("01T12:10:00", "02T11:59:59", "02T12:00:50"):
            start = f"{year}-01-{text}Z"
            assert start_of(start) == start
        for text, message in (
            ("02T12:05:00", rf"later than now.*-02T12:05:00Z.*{year}-01-02T12:00:00"),
            ("03T12:00:00", rf"later than now.*-03T12:00:00Z.*{year}-01-02T12:00:00"),
            ("01T11:59:59", rf"creation or retention.*-01T11:59:59Z.*{year}-01-01T12:00:0"),
        ):
            with pytest.raises(ConfigError, match=message) as caught:
                start_of(f"{year}-01-{text}Z")
            assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("setting", "address", "named"),
    [
        ("bootstrap_servers", NOWHERE, NOWHERE),
        ("registry_url", f"http://{NOWHERE}/", NOWHERE),
        ("spanner_emulator_host", NOWHERE, "Spanner does not answer"),
    ],
)
def test_a_system_that_does_not_answer_is_named(find, setting, address, named, monkeypatch):
    monkeypatch.setattr(channel, "_SESSION_TIMEOUT_S", 1.0)
    monkeypatch.setattr(environment, "list_topics", partial(list_topics, timeout_s=0.5))
    with pytest.raises(UnreachableError, match=named):
        find(**{setting: address})


def test_a_progress_topic_that_cannot_be_read_to_its_end_is_reported(find, record, monkeypatch):
    closed = []
    answers = []
    client = SimpleNamespace(consume=lambda *_: list(answers), close=lambda: closed.append(1))
    monkeypatch.setattr(root_slot, "consume_from_beginning", lambda *_, **__: client)
    monkeypatch.setattr(clients, "_SEARCH_PATIENCE_S", 0.1)
    with pytest.raises(UnreachableError, match=r"read to its end.*transaction may be open"):
        find()
    assert closed
    answers.append(SimpleNamespace(error=lambda: KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(UnreachableError, match=r"read to its end.*cause=.*Check the brokers"):
        find()


def test_a_worker_reads_the_roots_slot_once(place, find, record, monkeypatch):
    """For the record that opened the epoch, at its start and as a member, and for later tables."""
    made = []

    def make(config):
        made.append(config["group.id"])
        return Consumer(config)

    monkeypatch.setattr(kafka_clients, "Consumer", make)
    added = ProgressRecord("epoch-1", "worker-1", TableAdded(DataTopic("bank.T", "id", 3, 7)))
    place.record(added)

    found = find()
    parts = replace(EMPTY_PARTS, environment=found)
    assert parts.open_stream_start().poll() == (record, False)
    tables = found.root_slot.poll_records()
    give_up_at = time.monotonic() + PATIENCE_S
    while tables is None or not tables.records:
        assert time.monotonic() < give_up_at
        tables = found.root_slot.poll_records()
    assert tables.records == (added,)
    assert made == ["bank-fleet-root"]


def test_a_stream_that_has_not_begun_is_searched_for_its_record(place, find):
    place.create_topic("bank-progress")
    parts = replace(EMPTY_PARTS, environment=find())
    assert parts.environment.recorded is None
    record = started(place.config().stream_path)
    place.record(record)
    with closing(parts.open_stream_start()) as finder:
        give_up_at = time.monotonic() + PATIENCE_S
        while (read := finder.poll(0.1)[0]) is None:
            assert time.monotonic() < give_up_at
    assert read == find().recorded == record


def test_queries_say_what_the_settings_say_and_every_table_needs_a_topic(place, find):
    config = place.config(rpc_priority="low", request_tag="tide")
    with closing(open_spanner(config, has_begun=False, has_dead_letter=False)) as source:
        assert (source.query_options.priority, source.query_options.tag) == ("LOW", "tide")
    with pytest.raises(ConfigError, match="table Users: its topic's name has 251 characters"):
        find(topic_template="{prefix}-U" + "x" * 240 + "{table}")
    place.require_untouched()


def test_the_connections_are_closed_before_what_reads_by_them():
    closed = []
    channels, tasks = (
        SimpleNamespace(close=lambda name=name: closed.append(name)) for name in ("a", "b")
    )
    OpenedSource(None, None, None, tasks, channels=channels).close()
    OpenedSource(None, None, None, tasks).close()  # of files, without connections
    assert closed == ["a", "b", "b"]


def opened(location, **more):
    names = {"bootstrap_servers": "k:1", "registry_url": "http://r:1", "prefix": "bank"}
    source = {"kind": "datastream", "location": str(location), **more}
    config = ProducerConfig.load(None, **names, source=source, poison="park")
    return open_files(config, config.files)


def test_a_source_of_files_has_the_settings_and_those_of_its_tables(tmp_path):
    with closing(
        opened(f"{tmp_path}/", poll_seconds=3, open_minutes=4, lateness_seconds=5)
    ) as found:
        stream, limits = found.stream, found.stream.limits
        assert (stream.location, stream.poll_ms, stream.parks) == (str(tmp_path), 3_000, True)
        assert (limits.open_minutes, limits.lateness_us, limits.late_hours) == (4, 5_000_000, 24)
        assert stream.tables == TableSettings()
        assert found.description.watches_all
        assert found.channels is None
    later = {"since": "1970-01-01T00:00:01Z", "log": "mysql-bin.000124"}
    tables = {"keys": {"HR.JOBS": ["ID"]}, "backfills": {"shop.orders": later}}
    with closing(opened(tmp_path, **tables)) as found:
        assert found.stream.tables == TableSettings(
            keys={"HR.JOBS": ("ID",)},
            backfills={"shop.orders": LaterBackfill(1_000_000, "mysql-bin.000124")},
        )


@pytest.mark.parametrize("location", ["ftp://x/y", "gs://", "nothing/here"])
def test_a_location_that_cannot_be_read_is_named_with_its_setting(tmp_path, location):
    where = tmp_path / location if location.startswith("nothing") else location
    with pytest.raises(ConfigError, match=r"^source\.location: ") as raised:
        opened(where)
    assert raised.value.hint


def test_the_filter_has_what_the_settings_leave_out(place):
    assert filter_of(place.config()).is_empty
    chosen = filter_of(place.config(mod_types="insert,delete", tags_left_out="a;b c"))
    assert (chosen.mod_types, chosen.tags_left_out) == (("INSERT", "DELETE"), ("a", "b c"))


def test_keys_that_move_are_never_parked(place):
    moves = SimpleNamespace(has_key_moves=True, partition_mode="MUTABLE_KEY_RANGE")
    park, stop = place.config(poison="park"), place.config()
    require_mode(park, SimpleNamespace(has_key_moves=False), has_dead_letter=True)
    require_mode(stop, moves, has_dead_letter=False)
    with pytest.raises(ConfigError, match="poison: park is not possible"):
        require_mode(park, moves, has_dead_letter=False)
    with pytest.raises(ConfigError, match="has a dead-letter topic"):
        require_mode(stop, moves, has_dead_letter=True)


def test_a_column_that_flat_values_have_no_place_for_is_named(place):
    column = Column("__op", ColumnType("STRING"), 2)
    table = TableSchema("shop.T", (Column("id", ColumnType("INT64"), 1, key_position=1), column))
    described = SimpleNamespace(tables=(table,))
    require_names(place.config(), described)
    with pytest.raises(ConfigError, match=r"cannot have the column shop\.T\.__op") as caught:
        require_names(place.config(envelope="flat"), described)
    assert "columns_left_out" in caught.value.hint
    assert "a stream that has begun needs another prefix" in caught.value.hint


def test_a_backfill_is_of_tables_that_are_published(place):
    listed = place.config(backfill=" Users ,Sales.Orders")
    published = ["Users", "Sales.Orders", "Other"]
    assert backfill_tables(listed, published) == ("Users", "Sales.Orders")
    assert backfill_tables(place.config(backfill="*"), published) == tuple(sorted(published))
    assert backfill_tables(place.config(), published) == ()
    with pytest.raises(ConfigError, match=r"backfill: .* does not publish the table Users.*Other"):
        backfill_tables(listed, ["Other"])


def test_a_stream_that_began_without_a_backfill_gets_none(place):
    token = read_token(ReadPartition("Users", 0, 1, 5, None, None))
    without, with_one = (
        ProgressRecord("e", "w", replace(started("s").body, children=(ChildPartition(one, (), 1),)))
        for one in ("token", token)
    )
    config = place.config(backfill="Users")
    with pytest.raises(ConfigError, match="begun without a backfill"):
        require_backfill(config, without)
    require_backfill(config, with_one)
    require_backfill(place.config(), without)
