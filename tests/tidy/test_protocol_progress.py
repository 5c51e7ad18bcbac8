"""docs/protocol.md, sections 5 and 6: each example and table is computed by the code."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.tidy.protocol_page import (
    code,
    described_fields,
    example,
    filled,
    part,
    section,
    table,
)
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    ControlState,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    StreamControl,
    StreamStarted,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
    WorkerDrain,
)
from tidegate.schemas.progress_chunks import (
    CHUNK_BYTES_MAX,
    CHUNK_ITEMS_MAX,
    ProgressAssembler,
    split,
)
from tidegate.schemas.progress_codec import (
    KEY_SCHEMA,
    RECORD_SCHEMA,
    decode_record,
    encode_key,
    encode_record,
)
from tidegate.schemas.topics import TopicNames, slot_of
from tidegate.schemas.wire_format import frame, unframe

BODIES = {
    body.__name__: body
    for body in (StreamStarted, PartitionFinished, SlotProgress, SlotChanges, SlotWatermark)
}

# ---------------------------------------------------------------- progress records


def test_bodies_and_their_keys():
    rows = table("body", "meaning", "key: `kind`, `id`, `detail`, `chunk`", "slot")
    union = next(field for field in RECORD_SCHEMA["fields"] if field["name"] == "body")["type"]
    kinds = KEY_SCHEMA["fields"][0]["type"]["symbols"]

    assert [code(row[0])[0] for row in rows] == [body["name"] for body in union]
    assert [code(row[2])[0] for row in rows] == kinds
    assert [field["name"] for field in KEY_SCHEMA["fields"]] == ["kind", "id", "detail", "chunk"]


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


def cut_list(body: Any) -> tuple[Any, ...]:
    return body.tokens if isinstance(body, SlotProgress) else body.children


def test_where_records_are_cut():
    for case in example("chunks"):
        body = filled(case["body"], case["items"], case["token_bytes"])
        chunks = split(body)

        assert [len(cut_list(chunk)) for chunk in chunks] == case["chunks"]
        assert [chunk.chunk for chunk in chunks] == list(range(len(chunks)))
        assert {chunk.chunks for chunk in chunks} == {len(chunks)}


def test_limits_of_a_chunk():
    limits = [int(code(value)[0]) for _, value in table("limit of a chunk", "value")]

    assert limits == [CHUNK_ITEMS_MAX, CHUNK_BYTES_MAX]


def test_which_fields_each_chunk_has():
    heading = ("body", "the lists that are cut", "only in chunk 0", "repeated in every chunk")
    rows = {code(row[0])[0]: [code(cell) for cell in row[1:]] for row in table(*heading)}

    assert set(rows) == set(BODIES)
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


def test_a_set_of_chunks_out_of_order_does_not_exist():
    first, second = split(filled("SlotProgress", 2), items_max=1)
    other = replace(second, revision=2)

    def assembled(*chunks: Any) -> list[Any]:
        assembler = ProgressAssembler()
        made = [assembler.add(chunk, offset=offset) for offset, chunk in enumerate(chunks)]
        return [each for each in made if each is not None]

    announcement = PartitionAnnounced(ChildPartition("c", (), 1), "p")
    assert assembled(first, second) == [(filled("SlotProgress", 2), 0)]
    assert assembled(first, announcement, second)[-1] == (filled("SlotProgress", 2), 0)
    assert assembled(second, first) == []
    assert assembled(first, other) == []


def test_a_token_that_is_cut_is_one_item_again():
    """Only neighbours that are equal in all other fields are parts of one token."""
    boundary = tuple((letter * 20, "1") for letter in "abc")
    whole = TokenSnapshot("P", 1, ("O",), ("O",), 9, boundary)
    body = replace(filled("SlotProgress", 2), tokens=(whole, replace(whole, token="Q")))
    chunks = split(body, bytes_max=100)
    parts = [token for chunk in chunks for token in chunk.tokens]

    assert [(part.token, len(part.boundary)) for part in parts] == [("P", 1)] * 3 + [("Q", 1)] * 3
    assembler = ProgressAssembler()
    assert [assembler.add(chunk, offset=0) for chunk in chunks][-1] == (body, 0)


def test_what_moves_is_described():
    (moved,) = [
        row for row in part(section("5.4"), "SlotChanges").splitlines() if "| `moved` |" in row
    ]
    assert set(code(moved)) == {"moved", *(field.name for field in fields(TokenMove))}


def test_the_bodies_of_a_pause_and_a_drain_are_those_of_the_schema():
    union = next(field for field in RECORD_SCHEMA["fields"] if field["name"] == "body")["type"]
    assert example("control bodies") == union[-3:]


@pytest.mark.parametrize(
    "name", ["announcement", "snapshot", "changes", "pause", "drain", "paused slot"]
)
def test_progress_record(name):
    given = example(name)
    envelope = given["record"]
    record = ProgressRecord(envelope["epoch"], envelope["worker"], body_of(envelope["body"]))

    assert given["key"] == frame(3, encode_key(record.body)).hex()
    assert given["value"] == frame(4, encode_record(record)).hex()
    _, body = unframe(bytes.fromhex(given["value"]))
    assert decode_record(body) == record
    # Every field stands there, so that a reader of the page need not guess any.
    (content,) = envelope["body"].values()
    assert set(content) == {field.name for field in fields(record.body)}


def body_of(given: dict[str, Any]) -> Any:
    ((name, content),) = given.items()
    return {
        "PartitionAnnounced": lambda child, parent, parked_keys: PartitionAnnounced(
            child_of(child), parent, tuple(parked_keys)
        ),
        "StreamControl": lambda **entries: StreamControl(
            **{**entries, "state": ControlState(entries["state"])}
        ),
        "WorkerDrain": WorkerDrain,
        "SlotPaused": SlotPaused,
        "SlotProgress": lambda **entries: SlotProgress(
            **{
                **entries,
                "vector": tuple(TopicOffset(**entry) for entry in entries["vector"]),
                "tokens": tuple(token_of(**entry) for entry in entries["tokens"]),
            }
        ),
        "SlotChanges": lambda **entries: SlotChanges(
            **{
                **entries,
                "vector": tuple(TopicOffset(**entry) for entry in entries["vector"]),
                "slowest": SlowestToken(**entries["slowest"]),
                "added": tuple(token_of(**entry) for entry in entries["added"]),
                "moved": tuple(move_of(**entry) for entry in entries["moved"]),
                "removed": tuple(entries["removed"]),
            }
        ),
    }[name](**content)


def child_of(given: dict[str, Any]) -> ChildPartition:
    return ChildPartition(given["token"], tuple(given["parents"]), given["start_ns"])


def token_of(**given: Any) -> TokenSnapshot:
    return TokenSnapshot(
        **{
            **progress_of(given),
            "parents": tuple(given["parents"]),
            "parents_heard": tuple(given["parents_heard"]),
            "checksums": ChecksumKind(given["checksums"]),
            "parked_keys": tuple(given["parked_keys"]),
        }
    )


def move_of(**given: Any) -> TokenMove:
    return TokenMove(**progress_of(given))


def progress_of(given: dict[str, Any]) -> dict[str, Any]:
    return {
        **given,
        "boundary": tuple(
            (entry["server_transaction_id"], entry["record_sequence"])
            for entry in given["boundary"]
        ),
        "totals": tuple(
            TopicTotals(**{**total, "checksum": int(total["checksum"], 16)})
            for total in given["totals"]
        ),
    }


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
    prefix = given["prefix"]
    frontier = Frontier(Subscription(TopicNames(prefix)))
    reached: dict[str, dict[int, int]] = {f"{prefix}-progress": dict.fromkeys(range(2), 0)}

    for step in given["steps"]:
        for topic, offsets in step["next"].items():
            reached.setdefault(topic, {}).update(
                {int(number): offset for number, offset in offsets.items()}
            )
        rows = [progress_row(*row) for row in step["read"]]
        frontier.fold(rows, reached=reached)
        watermark = frontier.watermark()
        assert step["watermark_us"] == (watermark.us if watermark else None), step

    homes = {
        content["child"]: slot
        for step in given["steps"]
        for slot, _, record in step["read"]
        for name, content in record.items()
        if name == "PartitionAnnounced"
    }
    assert homes == {token: slot_of(token, 2) for token in ("P", "B", "D")}


def test_each_record_of_the_example_lies_before_the_readers_next_offset():
    given = example("watermark")
    topic, reached = f"{given['prefix']}-progress", {"0": 0, "1": 0}

    for step in given["steps"]:
        before = dict(reached)
        reached |= step["next"].get(topic, {})
        assert all(
            before[str(slot)] <= offset < reached[str(slot)] for slot, offset, _ in step["read"]
        )
