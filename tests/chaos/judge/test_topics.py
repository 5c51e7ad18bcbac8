"""The records of topics, as the judge decodes them."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.chaos.judge import topics as judge_topics
from tests.chaos.judge.order_key import order_key_of, place_of
from tests.chaos.judge.topics import (
    Decoder,
    ForeignRecordError,
    ProgressEntry,
    Topics,
    read_published,
)
from tidegate.local_stack.judge.log import (
    Place,
    origin_of,
    record_sequence_numbers,
)

KEY = {"type": "record", "name": "Key", "fields": [{"name": "K", "type": ["null", "long"]}]}
VALUE = {"type": "record", "name": "Change", "fields": [{"name": "mod_type", "type": "string"}]}
SCHEMAS = {1: fastavro.parse_schema(KEY), 2: fastavro.parse_schema(VALUE)}
ORDER = (7).to_bytes(8, "big") + b"tx\0" + bytes(20)


class Message:
    """As much of confluent_kafka's as is read."""

    def __init__(self, topic, *, key=None, value=None, headers=None):
        self._parts = topic, key, value, headers

    def topic(self):
        return self._parts[0]

    def partition(self):
        return 3

    def offset(self):
        return 9

    def key(self):
        return self._parts[1]

    def value(self):
        return self._parts[2]

    def headers(self):
        return self._parts[3]

    def timestamp(self):
        return 1, 1_700_000_000_000


def framed(schema_id, record):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMAS[schema_id], record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


GOOD = {
    "key": framed(1, {"K": 5}),
    "value": framed(2, {"mod_type": "UPDATE"}),
    "headers": [("order", ORDER), ("mod", b"U"), ("origin", b"12345678")],
}


@pytest.fixture
def decoder():
    return Decoder(Topics("p"), SCHEMAS.__getitem__)


def test_a_change(decoder):
    entry = decoder.decode(Message("p.t", **GOOD))

    assert (entry.topic, entry.data_topic, entry.offset) == ("p.t", "p.t", 9)
    assert (entry.place, entry.mod, entry.row) == (Place(7, "tx", (0, 0), 0), b"U", {"K": 5})
    assert entry.origin == b"12345678"
    assert entry.value == {"mod_type": "UPDATE"}


def test_a_dead_letter_names_the_topic_that_it_belongs_to(decoder):
    headers = [
        *GOOD["headers"][:2], ("topic", b"p.t"), ("form", b"record"), ("token", b"s"),
    ]  # fmt: skip
    entry = decoder.decode(Message("p-dead-letter", **{**GOOD, "headers": headers, "value": b"{}"}))

    assert (entry.topic, entry.data_topic, entry.value) == ("p-dead-letter", "p.t", None)
    assert entry.origin == origin_of("s")


def test_a_record_without_a_value_is_skipped(decoder):
    assert decoder.decode(Message("p.t", key=GOOD["key"])) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"headers": None},
        {"headers": [("mod", b"U"), ("order", ORDER)]},
        {"headers": GOOD["headers"][:2]},
        {"headers": [("order", ORDER[:9]), *GOOD["headers"][1:]]},
        {"headers": [("order", ORDER.replace(b"tx\0", b"tx ")), *GOOD["headers"][1:]]},
        {"key": b"\x01\0\0\0\1\0"},
        {"key": None},
        {"key": framed(1, {"K": 5})[:-1]},
        {"value": b"text"},
    ],
)
def test_what_no_producer_may_write_is_foreign(decoder, changed):
    with pytest.raises(ForeignRecordError, match=r"p\.t/3@9"):
        decoder.decode(Message("p.t", **{**GOOD, **changed}))


@pytest.mark.parametrize(
    ("kind", "tokens", "version"),
    [
        ("SLOT_PROGRESS", [{"token": "a"}], 1),
        ("SLOT_PROGRESS", [{"token": "a", "number": 0}], 2),
        ("SLOT_PROGRESS", [], None),
        ("SLOT_CHANGES", [], 2),
        ("PARTITION_FINISHED", [], None),
    ],
)
def test_a_heartbeat_tells_its_version(kind, tokens, version):
    assert ProgressEntry(0, 0, 0, kind, "e", {"tokens": tokens}).heartbeat_version == version


def test_the_names_of_the_topics():
    topics = Topics("eu.orders")

    assert topics.is_data("eu.orders.Items")
    assert topics.is_data("eu.orders.shop.Items")
    assert not any(topics.is_data(one) for one in ("eu.orders.a.b.c", "eu.orders", "euxorders.a"))
    assert topics.are_read("eu.orders-progress")
    assert not topics.are_read("__consumer_offsets")


PROGRESS_KEY = {"type": "record", "name": "K", "fields": [
    {"name": "kind", "type": "string"}, {"name": "id", "type": "string"},
]}  # fmt: skip
PROGRESS = {"type": "record", "name": "R", "fields": [
    {"name": "epoch", "type": "string"},
    {"name": "body", "type": {"type": "record", "name": "B", "fields": [
        {"name": "token", "type": "string"}]}},
]}  # fmt: skip
SCHEMAS |= {3: fastavro.parse_schema(PROGRESS_KEY), 4: fastavro.parse_schema(PROGRESS)}


def progress(kind: str, token: str) -> Message:
    value = framed(4, {"epoch": "e", "body": {"token": token}})
    return Message("p-progress", key=framed(3, {"kind": kind, "id": token}), value=value)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch):
    """A broker whose topics are given as messages."""
    messages: list[Message] = []

    def committed(_servers: str, topics: list[str]) -> list[Any]:
        return [message for message in messages if message.topic() in topics]

    monkeypatch.setattr(judge_topics, "committed_messages", committed)
    monkeypatch.setattr(judge_topics, "topics_in", lambda _: ["other", "p-progress", "p.t"])
    return messages


def test_all_topics_of_a_prefix_are_read_with_their_ends(broker, decoder):
    broker += [Message("p.t", **GOOD), Message("p.t", **{**GOOD, "value": b"text"})]
    broker += [progress("PARTITION_FINISHED", "a"), Message("other", **GOOD)]

    published = read_published("b", decoder)
    assert published.ends == {("p.t", 3): 10, ("p-progress", 3): 10}
    assert [one.row for one in published.data] == [{"K": 5}]
    assert published.bodies("PARTITION_FINISHED") == [{"token": "a"}]
    assert published.foreign[0].startswith("p.t/3@9: ")


def test_order_keys_are_those_of_the_protocol(repository: Path):
    text = (repository / "docs" / "protocol.md").read_text()
    match = re.search(r"<!-- example: order -->\n```json\n(.*?)```", text, re.DOTALL)
    for given in json.loads(match[1])["changes"]:
        place = Place(
            given["commit_timestamp_us"],
            given["server_transaction_id"],
            record_sequence_numbers(given["record_sequence"]),
            given["mod_number"],
        )
        assert order_key_of(place).hex() == given["order_key"]
        assert place_of(order_key_of(place)) == place
