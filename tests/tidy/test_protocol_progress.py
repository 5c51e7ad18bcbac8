"""docs/protocol.md, sections 5 to 7 and 11: each example and table is computed by the code."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.memory_topic import MemoryStage
from tests.tidy.protocol_page import code, described_fields, example, filled, part, section, table
from tests.topic_contract import QUERY, opened, release
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.producer import config
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core import transaction_cycle
from tidegate.producer.core.group_watch import WatchLimits
from tidegate.producer.core.position import Position
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.publication import Publication
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.kafka import admin, membership, publisher
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas import progress
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND
from tidegate.schemas.progress import (
    PRODUCER_FILTER,
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TimestampForm,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX, CHUNK_ITEMS_MAX, split
from tidegate.schemas.progress_codec import (
    KEY_SCHEMA,
    RECORD_SCHEMA,
    decode_record,
    encode_key,
    encode_record,
)
from tidegate.schemas.topics import TopicNames, slot_of
from tidegate.schemas.wire_format import frame, unframe
from tidegate.spark_consumer.sinks.kafka.output_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.port import FORMAT, ReleaseRecord

# ---------------------------------------------------------------- progress records


def bodies_of_the_schema() -> list[dict[str, Any]]:
    return next(field for field in RECORD_SCHEMA["fields"] if field["name"] == "body")["type"]


def test_bodies_and_their_keys():
    rows = table("body", "meaning", "key: `kind`, `id`, `detail`, `chunk`", "slot")
    kinds = KEY_SCHEMA["fields"][0]["type"]["symbols"]

    assert [code(row[0])[0] for row in rows] == [body["name"] for body in bodies_of_the_schema()]
    assert [code(row[2])[0] for row in rows] == kinds
    assert [field["name"] for field in KEY_SCHEMA["fields"]] == ["kind", "id", "detail", "chunk"]
    assert example("control bodies") == bodies_of_the_schema()[-3:]


@pytest.mark.parametrize(
    ("number", "heading", "name"),
    [
        ("5.1", "field", "StreamStarted"),
        ("5.2", "field", "PartitionAnnounced"),
        ("5.3", "field", "PartitionFinished"),
        ("5.3", "field of `totals`", "TopicTotals"),
        ("5.4", "field", "SlotProgress"),
        ("5.4", "field of `tokens`", "TokenSnapshot"),
        ("5.4", "field", "SlotChanges"),
        ("5.4", "field", "SlotWatermark"),
        ("5.7", "field", "TableAdded"),
        ("5.8", "field", "PartitionGap"),
        ("5.9", "field", "StreamControl"),
        ("5.10", "field", "WorkerDrain"),
        ("5.11", "field", "SlotPaused"),
    ],
)
def test_every_field_of_a_progress_record_is_described(number, heading, name):
    found: dict[str, list[str]] = {}

    def visit(node: Any) -> None:
        match node:
            case list():
                for item in node:
                    visit(item)
            case dict():
                if node.get("type") == "record":
                    found[node["name"]] = [field["name"] for field in node["fields"]]
                for item in node.values():
                    visit(item)

    visit(RECORD_SCHEMA)

    text = section(number)
    described = described_fields(part(text, name) or text, heading)
    if name in ("SlotChanges", "SlotWatermark"):  # what an item has is described in passing
        described = [field for field in described if field in found[name]]
    assert sorted(described) == sorted(found[name])


def test_where_records_are_cut():
    for case in example("chunks"):
        body = filled(case["body"], case["items"], case["token_bytes"])
        chunks = split(body)
        cut = "tokens" if isinstance(body, SlotProgress) else "children"

        assert [len(getattr(chunk, cut)) for chunk in chunks] == case["chunks"]
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert {chunk.chunks for chunk in chunks} == {len(chunks)}
    limits = [int(code(value)[0]) for _, value in table("limit of a chunk", "value")]
    assert limits == [CHUNK_ITEMS_MAX, CHUNK_BYTES_MAX]


def test_which_fields_each_chunk_has():
    heading = ("body", "the lists that are cut", "only in chunk 0", "repeated in every chunk")
    rows = {code(row[0])[0]: [code(cell) for cell in row[1:]] for row in table(*heading)}

    assert len(rows) == 5
    for name, (cut, once, repeated) in rows.items():
        body = filled(name, 2)
        first, *others = split(body, items_max=1, bytes_max=1)
        everything = {field.name for field in fields(body)} - {"chunk"}
        equal = {
            each
            for each in everything
            if all(getattr(first, each) == getattr(other, each) for other in others)
        }

        assert set(repeated) == equal
        assert set(once) == {
            each
            for each in everything - equal
            if getattr(first, each) == getattr(body, each)
            and not any(getattr(other, each) for other in others)
        }
        assert set(cut) == everything - equal - set(once)


def test_what_moves_is_described():
    (moved,) = [
        row for row in part(section("5.4"), "SlotChanges").splitlines() if "| `moved` |" in row
    ]
    assert set(code(moved)) == {"moved", *(field.name for field in fields(TokenMove))}


@pytest.mark.parametrize(
    "name", ["announcement", "snapshot", "changes", "pause", "drain", "paused slot"]
)
def test_progress_record(name):
    given = example(name)
    envelope = given["record"]
    ((kind, content),) = envelope["body"].items()
    body = TypeAdapter(getattr(progress, kind)).validate_python(from_page(content))
    record = ProgressRecord(envelope["epoch"], envelope["worker"], body)

    assert given["key"] == frame(3, encode_key(record.body)).hex()
    assert given["value"] == frame(4, encode_record(record)).hex()
    _, written = unframe(bytes.fromhex(given["value"]))
    assert decode_record(written) == record
    # All fields are in the example.
    assert set(content) == {field.name for field in fields(record.body)}


def from_page(node: Any, name: str = "") -> Any:
    """Return JSON of the page as the code's constructors take it."""
    match node:
        case dict() if name == "boundary":
            return node["server_transaction_id"], node["record_sequence"]
        case dict():
            return {key: from_page(item, key) for key, item in node.items()}
        case list():
            return tuple(from_page(item, name) for item in node)
        case _:
            return int(node, 16) if name == "checksum" else node


# ---------------------------------------------------------------- reading


def progress_row(slot: int, offset: int, given: dict[str, Any]) -> ProgressRow:
    """Return a record of the example, with what it leaves out filled in."""
    ((name, content),) = given.items()
    match name:
        case "StreamStarted":
            body: Any = replace(filled(name, 0), slots=content["slots"])
        case "PartitionAnnounced":
            child = ChildPartition(
                content["child"], (content["parent"],), content["start_us"] * NS_PER_US
            )
            body = PartitionAnnounced(child, content["parent"])
        case "PartitionFinished":
            body = replace(filled(name, 0), token=content["token"])
        case _:
            body = SlotProgress(
                slot,
                content["revision"],
                0,
                content["includes"],
                tuple(
                    TopicOffset(topic, int(number), last)
                    for topic, entries in content["vector"].items()
                    for number, last in entries.items()
                ),
                tuple(
                    TokenSnapshot(token, 0, (), (), watermark_us)
                    for token, watermark_us in content["tokens"].items()
                ),
            )
    return ProgressRow(slot, offset, ProgressRecord("epoch", "w", body))


def test_watermark_step_by_step():
    given = example("watermark")
    topic = f"{given['prefix']}-progress"
    frontier = Frontier(Subscription(TopicNames(given["prefix"])))
    reached: dict[str, dict[int, int]] = {topic: dict.fromkeys(range(2), 0)}
    homes = {}

    for step in given["steps"]:
        before = dict(reached[topic])
        for name, offsets in step["next"].items():
            reached.setdefault(name, {}).update(
                {int(number): offset for number, offset in offsets.items()}
            )
        for slot, offset, record in step["read"]:
            assert before[slot] <= offset < reached[topic][slot], step
            if "PartitionAnnounced" in record:
                homes[record["PartitionAnnounced"]["child"]] = slot
        frontier.fold([progress_row(*row) for row in step["read"]], reached=reached)
        watermark = frontier.watermark()
        assert step["watermark_us"] == (watermark.us if watermark else None), step

    assert homes == {token: slot_of(token, 2) for token in ("P", "B", "D")}


# ---------------------------------------------------------------- writing


OTHER_VALUES = {
    str: "other", int: 99, tuple: (), type(None): 99, TimestampForm: TimestampForm.STRING
}  # fmt: skip


def test_what_must_equal_the_recorded_stream():
    ((compared, not_compared), (of_topics, _), _, (of_filters, _)) = table(
        "compared", "not compared"
    )
    recorded = filled("StreamStarted", 1)
    (topic,) = recorded.topics
    identity = StreamIdentity(
        **{field.name: getattr(recorded, field.name) for field in fields(StreamIdentity)}
    )

    def differs(**changed: Any) -> bool:
        try:
            identity.require(replace(recorded, **changed))
        except StreamChangedError:
            return True
        return False

    def others(subject: Any) -> dict[str, Any]:
        names = {field.name for field in fields(subject)} - {"chunk", "chunks"}
        return {name: OTHER_VALUES[type(getattr(subject, name))] for name in names}

    found = others(recorded)
    assert set(code(compared)) == {name for name in found if differs(**{name: found[name]})}
    assert set(code(not_compared)) | {"topics", "filters"} == found.keys() - set(code(compared))
    assert set(code(of_topics)) == {
        name
        for name, value in others(topic).items()
        if differs(topics=(replace(topic, **{name: value}),))
    }
    assert set(code(of_filters)) == {"filters", PRODUCER_FILTER}
    assert differs(filters=(*recorded.filters, f"{PRODUCER_FILTER}x=y"))
    assert not differs(filters=(*recorded.filters, "exclude_insert=true"))
    assert not differs(topics=())
    assert not differs(topics=(topic, replace(topic, topic="not watched")))


class Client:
    """A Kafka client that only keeps its options."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def init_transactions(self, _timeout_s: float) -> None:
        pass


def test_options_of_a_joining_worker(monkeypatch):
    """Two processes have one worker's name; the first of them publishes."""
    made: list[dict[str, Any]] = []

    def make(options: dict[str, Any]) -> Client:
        made.append(options)
        return Client(options)

    monkeypatch.setattr(membership, "Consumer", make)
    monkeypatch.setattr(publisher, "Producer", make)
    monkeypatch.setattr(admin, "AdminClient", Client)
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
    publisher.KafkaPublisher(
        bootstrap_servers="127.0.0.1:1",
        transactional_id="orders-fleet-w1",
        transaction_timeout_ms=15_000,
        progress_topic="orders-progress",
        topic_partitions={},
        progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
    ).start()
    first, second, producer = made

    rows = {code(row[0])[0]: row[1] for row in table("setting", "value") if code(row[0])}
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


def test_times_and_names_of_workers():
    settings = ProducerConfig.model_fields
    limits = WatchLimits()
    names = ("transaction_timeout_ms", "session_timeout_ms", "commit_interval_ms", "heartbeat_ms")

    assert [float(code(value)[0]) for _, value in table("time", "value")] == [
        *(settings[name].default / 1_000 for name in names),
        transaction_cycle._COMMIT_PATIENCE_US / US_PER_SECOND,
        limits.patience_us / US_PER_SECOND,
        limits.pause_us / US_PER_SECOND,
    ]
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


# ---------------------------------------------------------------- the output topic


def test_the_output_topic():
    topic = KafkaOutputTopic("orders-all", bootstrap_servers="x")
    stage = MemoryStage()
    opened(stage.process()).write(release(0))
    ((_, _, headers), *_) = stage.records()[0]
    rows = table("header of the output topic", "value")

    assert [name for row in rows for name in code(row[0])] == [name for name, _ in headers]
    of_release = described_fields(section("11"), "field of a release's record")
    assert of_release == ["format", *(one.name for one in fields(ReleaseRecord))]
    assert topic.releases_topic == "orders-all-releases"
    assert stage.transactional_ids == [f"bank-gate-{QUERY}-topic"]
    for text in (
        f"| `format` | {FORMAT}; ",
        "| name | any that no stream has (section 2) | the output topic's, and `-releases` |",
        "`<prefix>-gate-<query id>-topic`",
    ):
        assert text in section("11")
