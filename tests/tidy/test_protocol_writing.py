"""docs/protocol.md, section 7: each example and table is computed by the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.tidy.protocol_page import code, example, filled, section, table
from tidegate.producer import config
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core import transaction_cycle
from tidegate.producer.core.group_watch import WatchLimits
from tidegate.producer.core.position import Position
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.kafka import admin, membership, publisher
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND
from tidegate.schemas.progress import (
    PRODUCER_FILTER,
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    StreamStarted,
    TimestampForm,
)
from tidegate.schemas.topics import slot_of


def test_what_must_equal_the_recorded_stream():
    ((compared, not_compared), (of_topics, _), _, (of_filters, _)) = table(
        "compared", "not compared"
    )
    recorded = replace(filled("StreamStarted", 1), topics=(DataTopic("t", "id", 1, 1),))
    identity = StreamIdentity(
        **{field.name: getattr(recorded, field.name) for field in fields(StreamIdentity)}
    )
    other_values = {
        str: "other",
        int: 99,
        tuple: (),
        type(None): 99,
        TimestampForm: TimestampForm.STRING,
    }

    def differs(changed: StreamStarted) -> bool:
        try:
            identity.require(changed)
        except StreamChangedError:
            return True
        return False

    def fields_that_differ(subject: Any, put: Callable[[Any], StreamStarted]) -> set[str]:
        changed = {
            field.name: replace(
                subject, **{field.name: other_values[type(getattr(subject, field.name))]}
            )
            for field in fields(subject)
            if field.name not in {"chunk", "chunks"}
        }
        return {name for name, value in changed.items() if differs(put(value))}

    assert set(code(compared)) == fields_that_differ(recorded, lambda started: started)
    assert set(code(not_compared)) | {"topics", "filters"} == {
        field.name for field in fields(recorded)
    } - set(code(compared)) - {"chunk", "chunks"}
    (topic,) = recorded.topics
    assert set(code(of_topics)) == fields_that_differ(
        topic, lambda changed: replace(recorded, topics=(changed,))
    )
    assert set(code(of_filters)) == {"filters", PRODUCER_FILTER}
    assert differs(replace(recorded, filters=(*recorded.filters, f"{PRODUCER_FILTER}x=y")))
    assert not differs(replace(recorded, filters=(*recorded.filters, "exclude_insert=true")))
    assert not differs(replace(recorded, topics=()))
    assert not differs(replace(recorded, topics=(topic, replace(topic, topic="not watched"))))


class Recorded:
    """A Kafka client that only keeps what it was made with."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options


@pytest.fixture
def joined(monkeypatch):
    """Return what two processes of one worker's name give their Kafka clients."""
    made: list[Recorded] = []

    def make(options: dict[str, Any]) -> Recorded:
        made.append(Recorded(options))
        return made[-1]

    monkeypatch.setattr(membership, "Consumer", make)
    monkeypatch.setattr(admin, "AdminClient", Recorded)
    for _ in range(2):
        membership.KafkaMembership(
            bootstrap_servers="127.0.0.1:1",
            group="orders-fleet",
            worker="w1",
            topic="orders-progress",
            session_timeout_ms=10_000,
            listener=None,
            decoder=None,
        )
    return [one.options for one in made]


def test_joining(joined, monkeypatch):
    rows = {code(row[0])[0]: row[1] for row in table("setting", "value") if code(row[0])}
    producers: list[dict[str, Any]] = []

    class Producer(Recorded):
        def init_transactions(self, _timeout_s: float) -> None:
            producers.append(self.options)

    monkeypatch.setattr(publisher, "Producer", Producer)
    publisher.KafkaPublisher(
        bootstrap_servers="127.0.0.1:1",
        transactional_id="orders-fleet-w1",
        transaction_timeout_ms=15_000,
        progress_topic="orders-progress",
        topic_partitions={},
        progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
    ).start()
    first, second = joined
    (producer,) = producers

    fixed = {
        name: code(value)[0] for name, value in rows.items() if code(value) and "<" not in value
    }
    assert len(fixed) == 4
    for name, value in fixed.items():
        options = first if name in first else producer
        assert str(options[name]).lower() == value, name
    assert first["group.instance.id"] == second["group.instance.id"] == "w1"
    assert first["client.id"].startswith("w1-")
    assert first["client.id"] != second["client.id"]


def test_times():
    settings = ProducerConfig.model_fields
    limits = WatchLimits()

    assert [float(code(value)[0]) for _, value in table("time", "value")] == [
        settings["transaction_timeout_ms"].default / 1_000,
        settings["session_timeout_ms"].default / 1_000,
        settings["commit_interval_ms"].default / 1_000,
        settings["heartbeat_ms"].default / 1_000,
        transaction_cycle._COMMIT_PATIENCE_US / US_PER_SECOND,
        limits.patience_us / US_PER_SECOND,
        limits.pause_us / US_PER_SECOND,
    ]


def test_names_of_workers():
    (pattern,) = re.findall(r"It matches `(.+)`\.", section("7.1"))

    assert pattern == config._WORKER.pattern


def test_whose_vector_a_finish_belongs_to():
    given = example("finish")
    slots, token = given["slots"], given["finished"]
    children = tuple(ChildPartition(child, (token,), 1) for child in given["children"])
    publication = Publication((), 0, Position(0), {}, (1, children))
    effects = ProgressWriter("epoch", "worker", slots).finish(
        StreamPartition(ChildPartition(token, (), 0)),
        publication,
        slot=slot_of(token, slots),
        version=2,
    )

    assert given["records"] == [
        {
            "body": type(body).__name__,
            "token": body.child.token if isinstance(body, PartitionAnnounced) else body.token,
            "slot": effect.slot,
            "author_slot": effect.author_slot,
        }
        for effect in effects
        for body in [effect.record.body]
    ]


def test_positions():
    given = example("positions")
    position = StreamPartition(ChildPartition("P", (), given["start_us"] * NS_PER_US)).read

    for step in given["steps"]:
        match step["read"]:
            case ["heartbeat", timestamp_us]:
                position = position.with_heartbeat(timestamp_us)
            case ["data", *coordinates]:
                position = position.with_record(PublishableRecord(*coordinates, messages=()))
        assert (step["watermark_us"], step["boundary"]) == (
            position.watermark_us,
            position.boundary,
        )
