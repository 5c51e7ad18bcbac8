"""One database read by seven fleets: each envelope and format, tombstones, and filters.

Events are read from a real Kafka and registry, by programs that have nothing of ours.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from google.cloud.spanner_v1 import KeySet

import tidegate as tg
from tests.integration.shared_stack import (
    PATIENCE_S,
    gate,
    now,
    open_shared_stack,
    read_bytes,
    read_everything,
    release,
    rows_of,
    run_producer,
)
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.schemas.errors import ConfigError

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DDL = [
    (
        "CREATE TABLE Orders (Id INT64, Note STRING(40), Price NUMERIC, Doc JSON, Seen TIMESTAMP) "
        "PRIMARY KEY (Id)"
    ),
    "CREATE TABLE Audit (Id INT64, Note STRING(40)) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Both FOR ALL OPTIONS (value_capture_type = 'NEW_ROW_AND_OLD_VALUES')",
    "CREATE CHANGE STREAM Changed FOR ALL OPTIONS (value_capture_type = 'OLD_AND_NEW_VALUES')",
    "CREATE CHANGE STREAM Whole FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
LATER = "ALTER TABLE Orders ADD COLUMN Place STRING(40)"
AT = "2023-11-14T22:13:20.123456Z"
ALL = ["Id", "Note", "Price", "Doc", "Seen"]
KINDS = ["INSERT", "INSERT", "UPDATE", "INSERT", "INSERT", "INSERT", "DELETE", "INSERT", "DELETE"]
KEYS = [1, 2, 1, 4, 5, 3, 1, 1, 2]
DELETES = KINDS.count("DELETE")
FILTERS = {
    "PRODUCER_TABLES_LEFT_OUT": "Aud*",
    "PRODUCER_COLUMNS_LEFT_OUT": "*.Doc,*.Price",
    "PRODUCER_MOD_TYPES": "insert,update",
    "PRODUCER_TAGS_LEFT_OUT": "app=backfill*",
    "CONSUMER_MIRROR_ACCEPTS": "exclude_delete,exclude_transactions",
}
FLEETS = {
    "stream": ("Both", {"PRODUCER_ENVELOPE": "datastream"}),
    "streamj": (
        "Both",
        {
            "PRODUCER_ENVELOPE": "datastream",
            "PRODUCER_VALUE_FORMAT": "json",
            "PRODUCER_TOMBSTONES": "true",
        },
    ),
    "dbz": ("Both", {"PRODUCER_ENVELOPE": "debezium", "PRODUCER_TOMBSTONES": "true"}),
    "dbzj": (
        "Both",
        {
            "PRODUCER_ENVELOPE": "debezium",
            "PRODUCER_VALUE_FORMAT": "json",
            "PRODUCER_KEY_FORMAT": "json",
            "PRODUCER_TOMBSTONES": "true",
        },
    ),
    "flat": ("Changed", {"PRODUCER_ENVELOPE": "flat"}),
    "buried": ("Whole", {"PRODUCER_TOMBSTONES": "true"}),
    "sifted": ("Whole", FILTERS),
}
HAVE_TOMBSTONES = ("streamj", "dbz", "dbzj", "buried")
ENVELOPES = {"stream": "datastream", "dbz": "debezium", "flat": "flat"}


def change(database):
    """Commit the changes; return the time of the last one, which is a DELETE."""
    with database.batch() as batch:
        batch.insert("Orders", ALL, [(1, "a", "19.90", '{"n":[1]}', AT)])
        batch.insert("Orders", ("Id", "Note"), [(2, None)])
        batch.insert("Audit", ("Id", "Note"), [(1, "who")])
    with database.batch(request_options={"transaction_tag": "app=reprice"}) as batch:
        batch.update("Orders", ("Id", "Note"), [(1, None)])
    with database.batch(request_options={"transaction_tag": "app=backfill,job=7"}) as batch:
        batch.insert("Orders", ("Id", "Note"), [(4, "d"), (5, "e")])
    database.update_ddl([LATER]).result(PATIENCE_S)
    with database.batch() as batch:
        batch.insert("Orders", (*ALL, "Place"), [(3, "c", None, None, None, "here")])
    for key in (1, 2):
        with database.batch() as last:
            last.delete("Orders", KeySet(keys=[[key]]))
        if key == 1:
            with database.batch() as batch:
                batch.insert("Orders", ("Id", "Note"), [(1, "again")])
    return commit_time_us(last.committed)


class Fleets:
    """The fleets' programs, while their workers run, and the time of the last change."""

    def __init__(self, stack, pipelines, last_us):
        self.stack, self.pipelines, self.last_us = stack, pipelines, last_us
        self.programs = {name: one.programs for name, one in pipelines.items()}
        self._messages = {}

    def topic(self, name, table="Orders"):
        return f"{self.programs[name].prefix}.{table}"

    def messages(self, name):
        """Return a fleet's messages with their values."""
        if name not in self._messages:
            count = len(KINDS) + DELETES * (name in HAVE_TOMBSTONES)
            content = read_bytes(self.stack, self.topic(name), count=count)
            assert len(content) == count, name
            self._messages[name] = [(one, self._value(name, one)) for one in content]
        return self._messages[name]

    def _value(self, name, message):
        if message.value() is None:
            return None
        if name.endswith("j"):
            return json.loads(message.value())
        registry = SchemaRegistryClient({"url": self.stack.registry_url})
        return AvroDeserializer(registry)(message.value(), None)

    def values(self, name):
        """Return the values in commit order, which the first header gives."""
        changes = [(one, value) for one, value in self.messages(name) if one.headers()]
        assert {tuple(header[0] for header in one.headers()) for one, _ in changes} == {
            ("order", "mod", "origin")
        }
        changes.sort(key=lambda one: dict(one[0].headers())["order"])
        return [value for _, value in changes]

    def run(self, name, *arguments, **environ):
        return run_producer(self.programs[name], *arguments, **environ)


@pytest.fixture(scope="module")
def fleets(kafka_and_registry, tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    with (
        open_shared_stack(kafka_and_registry, folder) as stack,
        contextlib.ExitStack() as stops,
    ):
        database, start, pipelines = stack.create_database(DDL), now(), {}
        admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        # As users do who keep the newest value of each key.
        config = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
        compacted = NewTopic(f"{stack.prefix}buried.Orders", 2, 1, config=config)
        admin.create_topics([compacted])[compacted.topic].result()
        for name, (stream, settings) in FLEETS.items():
            pipeline = Pipeline(stack.programs(stream, name=name, **settings))
            pipelines[name] = pipeline
            stops.callback(pipeline.stop)
            pipeline.workers = [pipeline.programs.worker("w1", start=start)]
            pipeline.workers[0].start()
        for name, pipeline in pipelines.items():
            pipeline.wait(
                lambda name=name: f"{stack.prefix}{name}-progress" in stack.topics(),
                what="the progress topic", deadline_s=PATIENCE_S,
            )  # fmt: skip
        yield Fleets(stack, pipelines, change(database))
        assert [one.stop() for one in pipelines.values()] == [[]] * len(FLEETS)


def test_datastreams_events_hold_whole_rows(fleets):
    events = fleets.values("stream")
    assert [event["source_metadata"]["change_type"] for event in events] == KINDS
    updated, deleted = events[2], events[6]
    assert updated["payload"]["Id"] == 1
    assert updated["payload"]["Note"] is None
    assert str(updated["payload"]["Price"]) == "19.900000000"
    assert updated["payload"]["Doc"] == '{"n":[1]}'
    assert updated["payload"]["Seen"] == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert updated["source_metadata"]["transaction_tag"] == "app=reprice"
    assert events[5]["payload"]["Place"] == "here"
    assert deleted["source_metadata"]["is_deleted"] is True
    assert {event["source_metadata"]["table"] for event in events} == {"Orders"}
    assert {event["object"] for event in events} == {"Orders"}
    assert len({event["schema_key"] for event in events}) == 2
    by_sort_keys = sorted(events, key=lambda event: event["sort_keys"])
    assert [event["uuid"] for event in by_sort_keys] == [event["uuid"] for event in events]


def test_another_fleet_gives_the_same_ids_in_another_format(fleets):
    in_avro, in_json = fleets.values("stream"), fleets.values("streamj")
    assert [event["uuid"] for event in in_json] == [event["uuid"] for event in in_avro]
    assert len({event["uuid"] for event in in_avro}) == len(KINDS)
    assert in_json[2]["payload"]["Doc"] == {"n": [1]}
    assert in_json[2]["payload"]["Price"] == pytest.approx(19.9)
    assert in_json[2]["payload"]["Seen"] == AT
    assert in_json[0]["read_timestamp"].endswith("Z")


def test_debeziums_values_hold_both_rows(fleets):
    events = fleets.values("dbz")
    assert [event["op"] for event in events] == [kind[0].lower() for kind in _as_debezium(KINDS)]
    updated, deleted = events[2], events[6]
    assert updated["before"]["Note"] == "a"
    assert updated["source"]["before_columns"] == ["Id", "Note"]
    assert updated["after"]["Price"] in {"19.9", "19.90"}
    assert updated["after"]["Seen"] == AT
    assert deleted["after"] is None
    assert deleted["before"]["Id"] == 1
    assert events[5]["after"]["Place"] == "here"
    assert updated["source"]["transaction_tag"] == "app=reprice"
    assert updated["source"]["change_stream_name"] == "Both"
    assert updated["source"]["partition_token"]
    in_json = fleets.values("dbzj")
    assert [event["source"]["ts_ns"] for event in in_json] == [
        event["source"]["ts_ns"] for event in events
    ]
    assert [event["after"] for event in in_json] == [event["after"] for event in events]


def _as_debezium(kinds):
    return [kind.replace("INSERT", "create") for kind in kinds]


def test_flat_values_tell_what_is_absent_from_what_is_null(fleets):
    values = fleets.values("flat")
    rows = [(value["Id"], value["Note"], value["__columns"]) for value in values]
    later = [*ALL, "Place"]
    assert rows == [
        (1, "a", ALL),
        (2, None, ALL),
        (1, None, ["Id", "Note"]),  # Note is NULL, the others are absent
        (4, "d", ALL),
        (5, "e", ALL),
        (3, "c", later),
        (1, None, later),  # what was deleted
        (1, "again", later),
        (2, None, later),
    ]
    assert (values[2]["Price"], values[6]["Doc"], values[5]["Place"]) == (None, '{"n":[1]}', "here")
    assert [value["__op"] for value in values] == [kind[0].lower() for kind in _as_debezium(KINDS)]
    assert [value["__deleted"] for value in values] == [
        str(kind == "DELETE").lower() for kind in KINDS
    ]
    assert values[2]["__transaction_tag"] == "app=reprice"
    assert {value["__value_capture_type"] for value in values} == {"OLD_AND_NEW_VALUES"}


def test_keys_are_json_where_they_are_to_be(fleets):
    keys = [json.loads(message.key()) for message, _ in fleets.messages("dbzj")]
    assert sorted(key["Id"] for key in keys) == sorted([*KEYS, 1, 2])
    assert {tuple(key) for key in keys} == {("Id",)}
    assert {message.key()[:1] for message, _ in fleets.messages("streamj")} == {b"\0"}


@pytest.mark.parametrize("name", HAVE_TOMBSTONES)
def test_a_keys_next_record_after_each_delete_is_its_tombstone(fleets, name):
    """And after no other change."""
    by_key = defaultdict(list)
    for message, _ in sorted(fleets.messages(name), key=lambda one: one[0].offset()):
        by_key[message.key()].append(message)
    tombstones = 0
    for of_key in by_key.values():
        assert of_key[0].value() is not None
        for one, following in pairwise([*of_key, None]):
            is_delete = one.value() is not None and dict(one.headers())["mod"] == b"D"
            has_tombstone = following is not None and following.value() is None
            assert is_delete == has_tombstone
            if has_tombstone:
                assert following.partition() == one.partition()
                assert not following.headers()
                tombstones += 1
    assert tombstones == DELETES


@pytest.mark.rule("P3")
def test_the_newest_values_are_the_rows_and_the_gate_counts_changes_only(fleets, spark):
    found = read_everything(fleets.stack, fleets.topic("buried"), count=len(KINDS) + DELETES)
    newest = {message.key()["Id"]: message.value() for message in found}
    rows = {key: value["new_values"]["Note"] for key, value in newest.items() if value}
    assert rows == {1: "again", 3: "c", 4: "d", 5: "e"}
    assert {key for key, value in newest.items() if value is None} == {2}
    programs = fleets.programs["buried"]
    release(spark, fleets.pipelines["buried"], fleets.last_us)
    assert {row["Id"]: row["Note"] for row in rows_of(programs, "mirror/Orders")} == rows
    assert len(rows_of(programs, "changelog/Orders")) == len(KINDS)
    report = tg.audit(
        spark, str(programs.output), prefix=programs.prefix, checkpoint=str(programs.checkpoint),
        bootstrap_servers=programs.bootstrap_servers, registry_url=programs.registry_url,
    )  # fmt: skip
    content = report.content()
    assert content["mismatches"] == []
    assert content["transactions"]["mismatched"] == 0


def test_what_a_fleet_leaves_out_is_nowhere_and_moves_the_watermark(fleets, spark):
    """The last commit is a DELETE, which is in no topic: the watermark alone has passed it."""
    programs = fleets.programs["sifted"]
    release(spark, fleets.pipelines["sifted"], fleets.last_us)
    found = read_everything(fleets.stack, fleets.topic("sifted"), count=5)
    found.sort(key=lambda message: dict(message.headers())["order"])
    assert [(one.key()["Id"], one.value()["mod_type"]) for one in found] == [
        (1, "INSERT"), (2, "INSERT"), (1, "UPDATE"), (3, "INSERT"), (1, "INSERT"),
    ]  # fmt: skip
    assert {tuple(one.value()["new_values"]) for one in found} == {
        ("Id", "Note", "Seen"), ("Id", "Note", "Seen", "Place"),
    }  # fmt: skip
    topics = fleets.stack.topics()
    assert fleets.topic("sifted", "Audit") not in topics
    assert fleets.topic("buried", "Audit") in topics
    mirror = {row["Id"]: row["Note"] for row in rows_of(programs, "mirror/Orders")}
    assert mirror == {1: "again", 2: None, 3: "c"}


def test_commands_know_the_envelopes(fleets):
    records = {"stream": "DatastreamEvent", "dbz": "Envelope", "flat": "FlatChange"}
    for name, record in records.items():
        assert f'"name": "{record}"' in fleets.run(name, "schemas", "show", "Orders").stdout
        checked = fleets.run(name, "schemas", "check")
        assert checked.returncode == 0, checked.stderr
    assert '"application/json"' in fleets.run("streamj", "schemas", "asyncapi").stdout
    assert '"application/json"' not in fleets.run("stream", "schemas", "asyncapi").stdout


PLAIN = {
    "PRODUCER_ENVELOPE": "tidegate",
    "PRODUCER_VALUE_FORMAT": "avro",
    "PRODUCER_KEY_FORMAT": "avro",
}


@pytest.mark.parametrize(
    ("name", "changed", "text"),
    [
        *(
            (name, PLAIN, f"envelope: recorded '{envelope}', now 'tidegate'")
            for name, envelope in ENVELOPES.items()
        ),
        ("dbzj", PLAIN, "value_format: recorded 'json', now 'avro'"),
        (
            "buried",
            {"PRODUCER_TOMBSTONES": "false"},
            "tombstones: recorded 'true', now 'false'",
        ),
        (
            "sifted",
            {"PRODUCER_TABLES_LEFT_OUT": ""},
            "recorded tables_left_out=Aud*, now without it",
        ),
    ],
    ids=["stream", "dbz", "flat", "dbzj", "buried", "sifted"],
)
def test_a_worker_with_another_setting_is_refused_by_name(fleets, name, changed, text):
    done = fleets.run(name, "check", **changed)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_gate_refuses_other_envelopes_by_name(fleets, spark, name):
    programs = fleets.programs[name]
    text = f"the stream's values have the envelope '{ENVELOPES[name]}', and the Spark consumer"
    with pytest.raises(Exception, match=text) as caught, gate(spark, programs) as query:
        query.awaitTermination(PATIENCE_S)
    assert isinstance(getattr(caught.value, "error", caught.value), ConfigError)
    assert not (programs.output / "changelog").exists()
    assert not (programs.output / "mirror").exists()
