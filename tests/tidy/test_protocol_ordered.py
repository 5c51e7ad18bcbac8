"""docs/protocol.md, section 11: its tables are those of the code."""

from __future__ import annotations

from dataclasses import fields

from tests.memory_topic import MemoryStage
from tests.tidy.protocol_page import code, described_fields, section, table
from tests.topic_contract import QUERY, opened, release
from tidegate.spark_consumer.sinks.kafka.kafka_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.release_record import FORMAT, ReleaseRecord

TEXT = section("11")


def test_headers():
    described = [
        name for row in table("header of the output topic", "value") for name in code(row[0])
    ]
    stage = MemoryStage()
    opened(stage.process()).write(release(0))
    ((_, _, headers), *_) = stage.records()[0]

    assert described == [name for name, _ in headers]


def test_fields_of_a_releases_record():
    assert described_fields(TEXT, "field of a release's record") == [
        "format",
        *(one.name for one in fields(ReleaseRecord)),
    ]
    assert f"| `format` | {FORMAT}; " in TEXT


def test_names():
    topic = KafkaOutputTopic("orders-all", bootstrap_servers="x")
    stage = MemoryStage()
    opened(stage.process())

    assert topic.releases_topic == "orders-all-releases"
    assert (
        "| name | any that no stream has (section 2) | the output topic's, and `-releases` |"
        in TEXT
    )
    assert "`<prefix>-gate-<query id>-topic`" in TEXT
    assert stage.transactional_ids == [f"bank-gate-{QUERY}-topic"]
