"""The AsyncAPI document: every topic with both schemas, and every reference resolves."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from tidegate.producer.commands.asyncapi import asyncapi
from tidegate.producer.commands.schemas import StreamTopic
from tidegate.producer.config import ProducerConfig
from tidegate.schemas.flat_schema import FLAT_FIELDS
from tidegate.schemas.registry import RegisteredSchema

KEY = RegisteredSchema(1, {"type": "record", "name": "Key", "fields": []})
VALUE = RegisteredSchema(2, {"type": "record", "name": "Change", "fields": []})
TOPICS = (
    StreamTopic("bank.shop.Items", "shop.Items", 6, KEY, VALUE),
    StreamTopic("bank.shop_Items", "shop_Items", 6, KEY, VALUE),
    StreamTopic("bank-progress", None, 16, KEY, VALUE),
)


def document(topics=TOPICS, **changes):
    settings = {
        "bootstrap_servers": "a:9092, b:9093", "registry_url": "http://127.0.0.1:8081/",
        "project": "p", "instance": "bank", "database": "bank", "change_stream": "Feed",
        "prefix": "bank", **changes,
    }  # fmt: skip
    return asyncapi(ProducerConfig.load(None, **settings), topics)


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        for one in value.values():
            yield from references(one)


def test_every_topic_is_a_channel_with_both_schemas():
    found = document()
    items = found["channels"]["bank--shop--Items"]
    assert (items["address"], items["bindings"]["kafka"]["partitions"]) == ("bank.shop.Items", 6)
    message = found["components"]["messages"]["bank--shop--Items"]
    assert message["payload"]["schema"] == VALUE.schema
    assert message["bindings"]["kafka"]["key"]["schema"] == KEY.schema
    assert set(message["headers"]["required"]) == {"order", "mod"}
    assert "headers" not in found["components"]["messages"]["bank-progress"]


def test_every_reference_resolves():
    found = document()
    names = set(references(found))
    assert len(names) == 2 * len(TOPICS)
    for name in names:
        assert reduce(lambda value, part: value[part], name.removeprefix("#/").split("/"), found)


@pytest.mark.parametrize(
    ("options", "protocol"),
    [({}, "kafka"), ({"security.protocol": "SASL_SSL"}, "kafka-secure"),
     ({"security.protocol": "sasl_plaintext"}, "kafka")],
)  # fmt: skip
def test_servers_are_named_without_secrets(options, protocol):
    options = {**options, "sasl.password": "hidden-word"}
    found = document(kafka_options=options, registry_user_info="me:hidden-word")
    assert [one["host"] for one in found["servers"].values()] == ["a:9092", "b:9093"]
    assert {one["protocol"] for one in found["servers"].values()} == {protocol}
    assert "hidden-word" not in json.dumps(found)


def test_json_values_have_no_schema_id():
    found = document(envelope="datastream", value_format="json")["components"]["messages"]
    items, progress = found["bank--shop--Items"], found["bank-progress"]
    assert items["contentType"] == "application/json"
    assert "schemaIdLocation" not in items["bindings"]["kafka"]
    assert progress["contentType"] == "application/vnd.apache.avro"
    assert progress["bindings"]["kafka"]["schemaIdLocation"] == "payload"


def test_keys_in_json_are_said_to_be():
    found = document(envelope="debezium", value_format="json", key_format="json")
    messages = found["components"]["messages"]
    assert messages["bank--shop--Items"]["summary"].endswith("The key is JSON, too.")
    assert "summary" not in messages["bank-progress"]


def test_tombstones_and_flat_values_are_shown():
    flat = {"type": "record", "name": "FlatChange", "fields": list(FLAT_FIELDS)}
    topics = (StreamTopic("bank.T", "T", 6, KEY, RegisteredSchema(3, flat)), TOPICS[-1])
    found = document(topics, tombstones=True, envelope="flat")
    assert found["components"]["messages"]["bank--T"]["name"] == "FlatChange"
    assert found["components"]["messages"]["bank--T"]["payload"]["schema"] == flat
    assert "no value" in found["channels"]["bank--T"]["description"]
    assert "no value" not in found["channels"]["bank-progress"]["description"]
    assert "no value" not in document()["channels"]["bank--shop--Items"]["description"]
