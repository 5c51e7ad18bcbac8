"""Streams written by hand, as no worker writes them, on a real Kafka and registry.

Each fault is one error that names what was found and what to do, and an output in which nothing is
missing or half written.
"""

from __future__ import annotations

import json

import pytest

import tidegate as tg
from tests.hand_stream import HandStream
from tests.integration.shared_stack import PATIENCE_S, gate, new_prefix, rows_of, wait_released
from tests.topics import Change
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.checksums import origin_of
from tidegate.spark_consumer.library.query import QueryFailed

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

FAR_US = 4_000_000_000_000_000
"""In the year 2096: a watermark with which a run has caught up."""


class Hand:
    """A stream, its output, and queries on one checkpoint."""

    def __init__(self, stack, folder, spark):
        self.stack, self.spark = stack, spark
        registry = HttpSchemaRegistry(stack.registry_url)
        self.stream = HandStream(new_prefix(), registry.register)
        self.stream.create(stack.bootstrap_servers)
        self.programs = Programs(
            folder=folder,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address="",
            database=DatabaseName(address=""),
            stream="",
            prefix=self.stream.names.prefix,
        )

    def stops_with(self, **settings):
        """Send what was written, and return the text of the error that ends the query."""
        self.stream.send(self.stack.bootstrap_servers)
        with (
            pytest.raises(QueryFailed) as caught,
            gate(self.spark, self.programs, **settings) as query,
        ):
            query.awaitTermination(PATIENCE_S)
        return str(caught.value.error)

    def releases_all(self, **settings):
        with gate(self.spark, self.programs, **settings) as query:
            wait_released(query, Pipeline(self.programs), FAR_US)

    def manifests(self):
        paths = sorted((self.programs.output / "_releases").glob("0*.json"))
        return [json.loads(path.read_bytes()) for path in paths]


@pytest.fixture
def hand(kafka_and_registry, tmp_path, spark):
    return Hand(kafka_and_registry, tmp_path, spark)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda value: b"\0\0\1\0\0" + value[5:], "names a schema that the registry does not know"),
        (lambda value: value[:9], "a value does not fit the schema that it names"),
    ],
    ids=["unknown schema", "undecodable"],
)
def test_a_record_that_cannot_be_decoded_is_named_and_nothing_is_written(hand, spoil, text):
    hand.stream.change(10)
    offset = hand.stream.change(11, spoil=spoil)
    hand.stream.beat(FAR_US)
    topic = hand.stream.tables["accounts"].topic
    error = hand.stops_with()
    assert text in error
    assert f"topic='{topic}', topic_partition=0, offset={offset}" in error
    assert "on_bad_record" in error
    assert not (hand.programs.output / "changelog" / "accounts").exists()
    assert hand.manifests() == []


@pytest.mark.rule("spanner-record-count", "P6")
def test_a_transaction_that_lacks_a_record_stops_the_run_and_is_recorded_on_demand(hand):
    stream = hand.stream
    for at_us in (10, 11):
        stream.change(at_us)
    one = stream.tables["accounts"]
    row = {"id": 12}
    lone = Change("INSERT", row, {**row, "t": ""}, us=12, transaction="x12", token="t", records=2)
    headers = [("order", lone.order_key), ("mod", b"I"), ("origin", origin_of("t"))]
    stream.write(one.topic, *one.framed(lone), headers)
    stream.beat(FAR_US)

    error = hand.stops_with()
    assert "fewer records than they state" in error
    assert "x12" in error
    assert hand.manifests() == []

    hand.releases_all(on_mismatch="record")
    manifests = hand.manifests()
    assert sum(one["rows"] for one in manifests) == 3
    assert len(rows_of(hand.programs, "changelog/accounts")) == 3
    (manifest,) = [one for one in manifests if "mismatches" in one]
    assert manifest["mismatches"] == 1
    (listed,) = manifest["first_mismatches"]
    assert listed["server_transaction_id"] == "x12"
    assert (listed["expected"], listed["found"]) == (
        {"records": 2},
        {"records": 1, "topics": [one.topic]},
    )
    assert tg.status(str(hand.programs.checkpoint))["mismatches"] == 1
