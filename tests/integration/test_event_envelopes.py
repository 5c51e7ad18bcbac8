"""Events of Debezium and Datastream on a real Kafka and registry, read by programs of others.

One database, one change stream, and a stream of each envelope and format beside each other.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from google.cloud.spanner_v1 import KeySet

from tests.integration.commands import run_consumer, run_producer
from tests.integration.topic_reading import read_bytes
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DDL = [
    (
        "CREATE TABLE Orders (Id INT64, Note STRING(40), Price NUMERIC, Doc JSON, Seen TIMESTAMP) "
        "PRIMARY KEY (Id)"
    ),
    "CREATE CHANGE STREAM Feed FOR Orders OPTIONS (value_capture_type = 'NEW_ROW_AND_OLD_VALUES')",
]
LATER = "ALTER TABLE Orders ADD COLUMN Place STRING(40)"
AT = "2023-11-14T22:13:20.123456Z"
PATIENCE_S = 240
CHANGES = 5
STREAMS = {
    "stream": {"ENVELOPE": "datastream"},
    "streamj": {"ENVELOPE": "datastream", "VALUE_FORMAT": "json", "TOMBSTONES": "true"},
    "dbz": {"ENVELOPE": "debezium", "TOMBSTONES": "true"},
    "dbzj": {
        "ENVELOPE": "debezium",
        "VALUE_FORMAT": "json",
        "KEY_FORMAT": "json",
        "TOMBSTONES": "true",
    },
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each topic holds, what those commands say that are looked at, and the consumer."""
    folder = tmp_path_factory.mktemp("events")
    results = {}
    with LocalStack(load_config(data_dir=folder / "stack", seed=5)) as stack:
        name = DatabaseName(address=stack.spanner_address)
        database = create_database(name, DDL)
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        for number, (prefix, settings) in enumerate(STREAMS.items()):
            (folder / prefix).mkdir()
            programs = Programs(
                folder=folder / prefix,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address=stack.spanner_address,
                database=name,
                stream="Feed",
                prefix=prefix,
                more={f"TIDEGATE_PRODUCER_{one}": value for one, value in settings.items()},
            )
            pipeline = Pipeline(programs)
            try:
                pipeline.start_workers(1, start=start)
                if number == 0:
                    change(database)
                is_json = settings.get("VALUE_FORMAT") == "json"
                count = CHANGES + (settings.get("TOMBSTONES") == "true")
                messages = read_bytes(stack, f"{prefix}.Orders", count=count)
                assert len(messages) == count
                results[prefix] = [
                    (message, value_of(stack, message, is_json=is_json)) for message in messages
                ]
            finally:
                faults = pipeline.stop()
            assert faults == []
            if number in {0, 2}:
                shown = run_producer(programs, "schemas", "show", "Orders")
                results[prefix, "schemas"] = shown.stdout
                results[prefix, "check"] = run_producer(programs, "schemas", "check")
            if number in {0, 1}:
                results[prefix, "asyncapi"] = run_producer(programs, "schemas", "asyncapi").stdout
            if number in {0, 2, 3}:
                results[prefix, "other"] = run_producer(
                    programs, "check", TIDEGATE_PRODUCER_ENVELOPE="tidegate",
                    TIDEGATE_PRODUCER_VALUE_FORMAT="avro", TIDEGATE_PRODUCER_KEY_FORMAT="avro",
                )  # fmt: skip
            if number in {0, 2}:
                results[prefix, "consumer"] = run_consumer(programs, "run")
                results[prefix, "output"] = (folder / prefix / "output" / "changelog").exists()
    return results


def change(database):
    columns = ("Id", "Note", "Price", "Doc", "Seen")
    with database.batch() as batch:
        batch.insert("Orders", columns, [(1, "a", "19.90", '{"n":[1]}', AT)])
        batch.insert("Orders", ("Id", "Note"), [(2, None)])
    with database.batch(request_options={"transaction_tag": "app=reprice"}) as batch:
        batch.update("Orders", ("Id", "Note"), [(1, None)])
    database.update_ddl([LATER]).result(PATIENCE_S)
    with database.batch() as batch:
        batch.insert("Orders", (*columns, "Place"), [(3, "c", None, None, None, "here")])
    with database.batch() as batch:
        batch.delete("Orders", KeySet(keys=[[1]]))


def value_of(stack, message, *, is_json):
    if message.value() is None:
        return None
    if is_json:
        return json.loads(message.value())
    read = AvroDeserializer(SchemaRegistryClient({"url": stack.registry_url}))
    return read(message.value(), None)


def values(found, prefix):
    """The values in commit order, which the first header gives."""
    changes = [(message, value) for message, value in found[prefix] if message.headers()]
    assert {tuple(one[0] for one in message.headers()) for message, _ in changes} == {
        ("order", "mod", "origin")
    }
    return [value for _, value in sorted(changes, key=lambda one: dict(one[0].headers())["order"])]


def test_datastreams_events_hold_whole_rows(found):
    events = values(found, "stream")
    kinds = [event["source_metadata"]["change_type"] for event in events]
    assert kinds == ["INSERT", "INSERT", "UPDATE", "INSERT", "DELETE"]
    updated, deleted = events[2], events[4]
    assert updated["payload"]["Id"] == 1
    assert updated["payload"]["Note"] is None
    assert str(updated["payload"]["Price"]) == "19.900000000"
    assert updated["payload"]["Doc"] == '{"n":[1]}'
    assert updated["payload"]["Seen"] == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert updated["source_metadata"]["transaction_tag"] == "app=reprice"
    assert events[3]["payload"]["Place"] == "here"
    assert deleted["source_metadata"]["is_deleted"] is True
    assert {event["source_metadata"]["table"] for event in events} == {"Orders"}
    assert {event["object"] for event in events} == {"Orders"}
    assert len({event["schema_key"] for event in events}) == 2
    by_sort_keys = sorted(events, key=lambda event: event["sort_keys"])
    assert [event["uuid"] for event in by_sort_keys] == [event["uuid"] for event in events]


def test_another_fleet_gives_the_same_ids_in_another_format(found):
    in_avro, in_json = values(found, "stream"), values(found, "streamj")
    assert [event["uuid"] for event in in_json] == [event["uuid"] for event in in_avro]
    assert len({event["uuid"] for event in in_avro}) == CHANGES
    assert in_json[2]["payload"]["Doc"] == {"n": [1]}
    assert in_json[2]["payload"]["Price"] == pytest.approx(19.9)
    assert in_json[2]["payload"]["Seen"] == AT
    assert in_json[0]["read_timestamp"].endswith("Z")


def test_debeziums_values_hold_both_rows(found):
    events = values(found, "dbz")
    assert [event["op"] for event in events] == ["c", "c", "u", "c", "d"]
    updated, deleted = events[2], events[4]
    assert updated["before"]["Note"] == "a"
    assert updated["source"]["before_columns"] == ["Id", "Note"]
    assert updated["after"]["Price"] in {"19.9", "19.90"}
    assert updated["after"]["Seen"] == AT
    assert deleted["after"] is None
    assert deleted["before"]["Id"] == 1
    assert events[3]["after"]["Place"] == "here"
    assert updated["source"]["transaction_tag"] == "app=reprice"
    assert updated["source"]["change_stream_name"] == "Feed"
    assert updated["source"]["partition_token"]
    in_json = values(found, "dbzj")
    assert [event["source"]["ts_ns"] for event in in_json] == [
        event["source"]["ts_ns"] for event in events
    ]
    assert [event["after"] for event in in_json] == [event["after"] for event in events]


def test_keys_are_json_where_they_are_to_be(found):
    keys = [json.loads(message.key()) for message, _ in found["dbzj"]]
    assert sorted(key["Id"] for key in keys) == [1, 1, 1, 1, 2, 3]
    assert {tuple(key) for key in keys} == {("Id",)}
    assert {message.key()[:1] for message, _ in found["streamj"]} == {b"\0"}


def test_tombstones_follow_deletes_in_each_format(found):
    for prefix in ("streamj", "dbz", "dbzj"):
        nulls = [message for message, value in found[prefix] if value is None]
        deletes = [
            message
            for message, value in found[prefix]
            if value is not None and dict(message.headers())["mod"] == b"D"
        ]
        ((tombstone,), (delete,)) = nulls, deletes
        assert tombstone.key() == delete.key()
        assert (tombstone.partition(), tombstone.offset()) == (
            delete.partition(),
            delete.offset() + 1,
        )
        assert not tombstone.headers()


def test_commands_know_the_envelopes(found):
    for prefix, name in (("stream", "DatastreamEvent"), ("dbz", "Envelope")):
        assert f'"name": "{name}"' in found[prefix, "schemas"]
        assert found[prefix, "check"].returncode == 0, found[prefix, "check"].stderr
    assert '"application/json"' in found["streamj", "asyncapi"]
    assert '"application/json"' not in found["stream", "asyncapi"]


def test_another_setting_and_the_consumer_are_refused_by_name(found):
    for prefix, envelope in (("stream", "datastream"), ("dbz", "debezium")):
        other = found[prefix, "other"]
        assert other.returncode == 2
        assert f"envelope: recorded '{envelope}', now 'tidegate'" in other.stderr
        refused = found[prefix, "consumer"]
        assert refused.returncode == 2
        text = f"the stream's values have the envelope '{envelope}', and the Spark consumer"
        assert text in refused.stdout + refused.stderr
        assert not found[prefix, "output"]
    assert "value_format: recorded 'json', now 'avro'" in found["dbzj", "other"].stderr
