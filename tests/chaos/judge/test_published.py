"""Each way in which topics can be wrong is one figure: changes, markers, queries, plans."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh64_intdigest

from tests.chaos.judge.logged_source import with_first_rows
from tests.chaos.judge.order_key import order_key_of
from tests.chaos.judge.partitions import Query, StreamPartitions, queries_in
from tests.chaos.judge.plans import Plan, PlanRecorder, compare_plans
from tests.chaos.judge.published import compare_published
from tests.chaos.judge.topics import DataEntry, ProgressEntry, Published, Topics
from tests.chaos.judge.verdict import judge_topics
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place, origin_of
from tidegate.local_stack.judge.source import FirstRows, SourceTable

TOPICS = Topics("p")
FRAME = b"\0\0\0\0\1"
VALUES = {
    "N": "7",
    "T": "text",
    "F": 0.5,
    "P": "1.5",
    "B": "YWI=",
    "S": "2024-01-01T00:00:00.000001Z",
    "D": "2024-02-29",
}
DECODED = {
    "N": 7,
    "T": "text",
    "F": 0.5,
    "P": Decimal("1.5"),
    "B": b"ab",
    "S": datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "D": date(2024, 2, 29),
}


def logged(at_us, key="k", mod_type="UPDATE", values=VALUES):
    place = Place(at_us, "tx", (0, 1), 0)
    return LoggedChange("t", place, mod_type, {"K": key}, values, {})


def committed(*changes):
    return [
        LoggedTransaction(change.place.commit_timestamp_us, "tx", "", frozenset("st"), (change,))
        for change in changes
    ]


def arrived(change, offset, *, topic="p.t", number=0, decoded=DECODED):
    row = {"K": change.keys["K"]}
    value = {"new_values": {**decoded, **row}, "new_columns": [*decoded, "K"]}
    return DataEntry(
        topic=topic,
        topic_partition=number,
        offset=offset,
        written_ms=0,
        data_topic="p.t",
        key=FRAME + change.keys["K"].encode(),
        place=change.place,
        mod=change.mod_type[:1].encode(),
        origin=origin_of("s"),
        row=row,
        value=value if topic == "p.t" and change.mod_type != "DELETE" else None,
    )


def wrong(transactions, entries, **more):
    found = compare_published(TOPICS, transactions, entries, **more)
    return {name: len(texts) for name, texts in found.items() if texts}


A, B, C = logged(100), logged(200), logged(300)
LETTERS = "p-dead-letter"


def test_what_arrived_once_and_in_order_is_right():
    gone = logged(400, mod_type="DELETE", values={})
    entries = [arrived(change, number) for number, change in enumerate((A, B, gone))]

    assert wrong(committed(A, B, gone), entries) == {}


@pytest.mark.parametrize(
    ("entries", "figure"),
    [
        ([arrived(A, 0)], "lost"),
        ([arrived(A, 0), arrived(A, 1), arrived(B, 2)], "twice"),
        ([arrived(B, 0), arrived(A, 1)], "out_of_key_order"),
        ([arrived(A, 0), arrived(B, 0, number=1)], "out_of_key_order"),
        ([arrived(A, 0), arrived(B, 1), arrived(C, 2)], "never_committed"),
        ([arrived(A, 0), replace(arrived(B, 1), mod=b"I")], "unlike_source"),
        ([arrived(A, 0), replace(arrived(B, 1), origin=origin_of("r"))], "unlike_source"),
        ([arrived(A, 0), replace(arrived(B, 1), row={"K": "other"})], "unlike_source"),
        ([arrived(A, 0), arrived(B, 1, decoded={"N": 7})], "unlike_source"),
        ([arrived(A, 0), arrived(B, 1, topic=LETTERS)], "parked_wrongly"),
        ([arrived(A, 0), replace(arrived(B, 1), key=b"\0\0\0\0\2k")], "out_of_key_order"),
    ],
)
def test_each_fault_is_found(entries, figure):
    assert wrong(committed(A, B), entries) == {figure: 1}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("other", [None, "zzz", 8, 0.25])
def test_another_value_is_found(name, other):
    if isinstance(other, type(DECODED[name])) or other is None:
        entry = arrived(A, 0, decoded={**DECODED, name: other})
        assert wrong(committed(A), [entry]) == {"unlike_source": 1}


def test_a_value_of_no_known_kind_is_refused():
    with pytest.raises(TypeError, match="cannot compare a list"):
        wrong(committed(A), [arrived(A, 0, decoded={**DECODED, "N": [7]})])


def test_not_a_number_and_null_are_values():
    change = logged(100, values={"F": "NaN", "N": None})
    entry = arrived(change, 0, decoded={"F": float("nan"), "N": None})

    assert wrong(committed(change), [entry]) == {}


def is_b(change):
    return change.place == B.place


@pytest.mark.parametrize(
    ("places", "figures"),
    [
        (("p.t", LETTERS, LETTERS), {}),
        (("p.t", LETTERS, "p.t"), {"parked_wrongly": 1}),
        (("p.t", "p.t", "p.t"), {"parked_wrongly": 1}),
        ((LETTERS, LETTERS, LETTERS), {"parked_wrongly": 1}),
        (("p.t", "p.t", LETTERS), {"parked_wrongly": 2}),
    ],
)
def test_after_a_poison_change_all_of_its_key_are_parked(places, figures):
    entries = [
        arrived(change, offset, topic=topic)
        for offset, (change, topic) in enumerate(zip((A, B, C), places, strict=True))
    ]

    assert wrong(committed(A, B, C), entries, is_poison=is_b) == figures


def test_another_key_is_not_parked_with_it():
    other = logged(250, key="other")
    entries = [arrived(B, 0, topic=LETTERS), arrived(other, 1)]

    assert wrong(committed(B, other), entries, is_poison=is_b) == {}
    entries = [arrived(B, 0, topic=LETTERS), arrived(other, 1, topic=LETTERS)]
    assert wrong(committed(B, other), entries, is_poison=is_b) == {"parked_wrongly": 1}


# ---------------------------------------------------------------- a stream from its begin


START_US, SPLIT_US, END_US = 5, 30, 50
BORN = {
    "a": {"start_timestamp_us": START_US, "parents": []},
    "b": {"start_timestamp_us": SPLIT_US, "parents": ["a"]},
    "c": {"start_timestamp_us": SPLIT_US, "parents": ["a"]},
}


def child(token: str) -> dict[str, Any]:
    start_ns = BORN[token]["start_timestamp_us"] * 1_000
    return {"token": token, "start_ns": start_ns, "parents": BORN[token]["parents"]}


def snapshot(revision: int, includes: int, vector: int, **tokens: int) -> dict[str, Any]:
    numbered = enumerate(tokens.items())
    return {
        "slot": 0, "revision": revision, "includes": includes, "chunk": 0, "chunks": 1,
        "vector": [{"topic": "p.t", "topic_partition": 0, "offset": vector}],
        "tokens": [
            {"token": name, "number": number, "watermark_us": us}
            for number, (name, us) in numbered
        ],
    }  # fmt: skip


@dataclass
class Stream:
    """Two changes of a stream partition, its split, one of each child; damaged by a test."""

    data: list[DataEntry] = field(default_factory=list)
    progress: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    born: dict[str, Any] = field(default_factory=lambda: dict(BORN))
    children: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"a": ("b", "c")})

    def __post_init__(self) -> None:
        self.changes = [logged(at_us) for at_us in (10, 20, 35, 45)]
        self.data = [
            replace(arrived(change, offset), origin=origin_of(token))
            for offset, (change, token) in enumerate(zip(self.changes, "aabc", strict=True))
        ]
        keys = [order_key_of(change.place) for change in self.changes[:2]]
        checksum = sum(xxh64_intdigest(key, 42) for key in keys) % (1 << 64)
        total = {"topic": "p.t", "mods": 2, "checksum": checksum.to_bytes(8)}
        self.marker = {
            "token": "a", "children": [child("b"), child("c")], "totals": [total], "parked": 0,
            "end_ns": SPLIT_US * 1_000, "chunk": 0, "checksums": "XXHASH_64",
        }  # fmt: skip
        self.progress = [
            ("STREAM_STARTED", {"slots": 1, "children": [child("a")]}),
            ("PARTITION_ANNOUNCED", {"parent": "", "child": child("a")}),
            ("SLOT_PROGRESS", snapshot(1, 1, 1, a=25)),
            ("PARTITION_FINISHED", self.marker),
            ("PARTITION_ANNOUNCED", {"parent": "a", "child": child("b")}),
            ("PARTITION_ANNOUNCED", {"parent": "a", "child": child("c")}),
            ("SLOT_PROGRESS", snapshot(2, 5, 3, b=END_US, c=END_US)),
        ]
        self.queries = [Query(1, "w", "a", START_US), Query(6_000, "w", "b", SPLIT_US)]

    def wrong(self) -> dict[str, int]:
        transactions = [
            LoggedTransaction(one.place.commit_timestamp_us, "tx", "", frozenset(token), (one,))
            for one, token in zip(self.changes, "aabc", strict=True)
        ]
        entries = [
            ProgressEntry(0, offset, offset, kind, "e", body)
            for offset, (kind, body) in enumerate(self.progress)
        ]
        logs: dict[Any, Any] = {("p-progress", 0): entries, ("p.t", 0): self.data}
        ends = {where: len(log) for where, log in logs.items()}
        found = judge_topics(
            Published(TOPICS, logs, ends),
            transactions,
            stream=StreamPartitions(START_US, self.born, self.children),
            queries=self.queries,
            seed=1,
        )
        return {name: len(texts) for name, texts in found.items() if texts}


def test_a_right_stream_has_no_fault():
    assert Stream().wrong() == {}


def lose_a_change(stream: Stream) -> None:
    stream.data[1] = replace(stream.data[1], place=stream.data[0].place)


def publish_twice(stream: Stream) -> None:
    stream.data.append(replace(stream.data[3], offset=4))


def swap_two_changes(stream: Stream) -> None:
    first, second = stream.data[:2]
    stream.data[:2] = [replace(second, offset=0), replace(first, offset=1)]


def publish_an_older_value(stream: Stream) -> None:
    value = {**stream.data[1].value, "new_values": {**DECODED, "K": "k", "N": 6}}
    stream.data[1] = replace(stream.data[1], value=value)


def raise_the_watermark_early(stream: Stream) -> None:
    stream.progress[2] = ("SLOT_PROGRESS", snapshot(1, 1, 0, a=25))
    stream.data[1:] = [replace(one, written_ms=3) for one in stream.data[1:]]


def leave_the_watermark_behind(stream: Stream) -> None:
    stream.progress[6] = ("SLOT_PROGRESS", snapshot(2, 5, 3, b=END_US, c=44))


def skip_a_revision(stream: Stream) -> None:
    stream.progress[6] = ("SLOT_PROGRESS", snapshot(3, 5, 3, b=END_US, c=END_US))


def finish_what_is_written_to(stream: Stream) -> None:
    stream.progress.append(("PARTITION_FINISHED", {**stream.marker, "token": "b", "totals": []}))


def mark(**changed: Any) -> Any:
    def damage(stream: Stream) -> None:
        stream.progress[3] = ("PARTITION_FINISHED", {**stream.marker, **changed})

    return damage


def finish_twice(stream: Stream) -> None:
    stream.progress.append(stream.progress[3])


def announce_no_child(stream: Stream) -> None:
    stream.progress[5] = ("PARTITION_ANNOUNCED", {"parent": "x", "child": child("c")})


def announce_no_beginning(stream: Stream) -> None:
    stream.progress[1] = ("PARTITION_ANNOUNCED", {"parent": "x", "child": child("a")})


def begin_a_child_late(stream: Stream) -> None:
    late = {**child("b"), "start_ns": 31_000}
    stream.progress[3] = ("PARTITION_FINISHED", {**stream.marker, "children": [late, child("c")]})


def query_a_child_early(stream: Stream) -> None:
    stream.queries.append(Query(2_000, "w", "c", SPLIT_US))


def query_before_the_stream(stream: Stream) -> None:
    stream.queries.append(Query(9_000, "w", "a", START_US - 1))


@pytest.mark.parametrize(
    ("damage", "figures"),
    [
        (lose_a_change, {"lost", "twice", "markers"}),
        (publish_twice, {"twice", "watermark_violations"}),
        (swap_two_changes, {"out_of_key_order"}),
        (publish_an_older_value, {"unlike_source"}),
        (raise_the_watermark_early, {"watermark_violations"}),
        (leave_the_watermark_behind, {"not_caught_up"}),
        (skip_a_revision, {"revisions"}),
        (finish_what_is_written_to, {"markers"}),
        (finish_twice, {"markers"}),
        (mark(totals=[]), {"markers"}),
        (mark(checksums="BLAKE2B_64"), {"markers"}),
        (mark(parked=1), {"markers"}),
        (mark(end_ns=29_000), {"markers"}),
        (mark(children=[child("b")]), {"markers"}),
        (announce_no_child, {"markers"}),
        (announce_no_beginning, {"markers"}),
        (begin_a_child_late, {"markers"}),
        (query_a_child_early, {"lineage"}),
        (query_before_the_stream, {"lineage"}),
    ],
)
def test_each_damage_of_a_stream_is_named(damage: Any, figures: set[str]):
    stream = Stream()
    damage(stream)
    assert stream.wrong().keys() == figures


def test_stream_partitions_that_the_simulator_does_not_know_are_not_compared_with_it():
    stream = Stream(born={})
    query_a_child_early(stream)
    mark(end_ns=29_000)(stream)
    assert stream.wrong() == {}


def test_queries_are_read_from_a_log_with_noise(tmp_path: Path):
    log = tmp_path / "w1.log"
    entry = {"event": "query", "token": "a", "start_ns": 5_999, "timestamp": "1970-01-01T00:00:01Z"}
    lines = ["%3|librdkafka says", json.dumps({"event": "step", "step": "query"})]
    log.write_text("\n".join([*lines, json.dumps(entry), json.dumps(entry)[:40]]))

    assert list(queries_in(log, worker="w1.1")) == [Query(1_000_000, "w1.1", "a", 5)]
    assert list(queries_in(tmp_path / "none", worker="w1.1")) == []


# ---------------------------------------------------------------- the first rows of a stream


AT_US = 50
TOKEN = "tidegate-backfill/read/0/1/xyz"
FIRST = FirstRows(AT_US, ("t",), frozenset({TOKEN, "s"}))
LAYOUT = {"t": SourceTable(("K", "A", "B"), ("K",))}


def written(at_us: int, key: int, mod_type: str, **values: str) -> LoggedTransaction:
    place = Place(at_us, f"tx{at_us}", (0, 1), 0)
    change = LoggedChange("t", place, mod_type, {"K": str(key)}, values, {})
    return LoggedTransaction(at_us, f"tx{at_us}", "", frozenset({"s"}), (change,))


LOG = [
    written(10, 1, "INSERT", A="a"),
    written(20, 2, "INSERT", A="b"),
    written(30, 1, "UPDATE", B="c"),
    written(40, 3, "INSERT", A="d"),
    written(AT_US, 3, "DELETE"),
    written(60, 1, "UPDATE", A="e"),
]


def entry(place: Place, key: int, mod: bytes, token: str, values: dict[str, Any]) -> DataEntry:
    return DataEntry(
        topic="p.t", topic_partition=0, offset=0, written_ms=0, data_topic="p.t",
        key=FRAME + str(key).encode(), place=place, mod=mod, origin=origin_of(token),
        row={"K": key},
        value={"new_values": {"K": key, **values}, "new_columns": ["K", *values]},
    )  # fmt: skip


def first_row(key: int, sequence: int, **values: Any) -> DataEntry:
    return entry(Place(AT_US, "spanner-backfill-0", (0, sequence), 0), key, b"I", TOKEN, values)


RIGHT = [
    first_row(1, 0, A="a", B="c"),
    first_row(2, 1, A="b", B=None),
    entry(Place(60, "tx60", (0, 1), 0), 1, b"U", "s", {"A": "e"}),
]


@pytest.mark.parametrize(
    ("entries", "figures"),
    [
        (RIGHT, {}),
        (RIGHT[1:], {"lost": 1}),
        (RIGHT[:2], {"lost": 1}),
        ([RIGHT[0], *RIGHT], {"twice": 1}),
        ([*RIGHT[:2], first_row(2, 2, A="b", B=None), RIGHT[2]], {"never_committed": 1}),
        ([RIGHT[0], first_row(2, 1, A="b", B="x"), RIGHT[2]], {"unlike_source": 1}),
        ([RIGHT[0], first_row(2, 1, A="b"), RIGHT[2]], {"unlike_source": 1}),
        ([*RIGHT[:2], first_row(3, 2, A="d", B=None), RIGHT[2]], {"never_committed": 1}),
        ([RIGHT[2], *RIGHT[:2]], {"out_of_key_order": 1}),
        ([replace(RIGHT[0], origin=origin_of("s")), *RIGHT[1:]], {"unlike_source": 1}),
    ],
    ids=[
        "right", "a row is missing", "a change is missing", "a record twice",
        "a row of a key twice", "another value", "a column less", "a row that was deleted",
        "a row after a change", "another stream partition",
    ],
)  # fmt: skip
def test_a_stream_begins_with_the_rows_of_that_time(entries, figures):
    published = Published(TOPICS, {("p.t", 0): list(entries)})
    expected = with_first_rows(LOG, FIRST, LAYOUT, published)
    assert wrong(expected, entries) == figures


# ---------------------------------------------------------------- plans


def plan(through_us: int) -> str:
    return json.dumps({"through_us": through_us, "end_offsets": {"p.t": {"0": 3, "1": 5}}})


def test_plans_are_kept_in_the_order_of_batches_and_as_often_as_they_change(tmp_path: Path):
    folder = tmp_path / "gate" / "plans"
    recorder = PlanRecorder(tmp_path)
    recorder.look()
    folder.mkdir(parents=True)
    for batch in (10, 9, 2):
        (folder / f"{batch}.json").write_text(plan(batch))
    (folder / ".11.json.1.tmp").write_text("half")
    recorder.look()
    (folder / "9.json").write_text(plan(8))
    recorder.look()
    recorder.look()

    found = [(one.batch, one.watermark_us) for one in recorder.plans]
    assert found == [(2, 2), (9, 9), (10, 10), (9, 8)]
    assert recorder.plans[0].read == {"p.t": {0: 3, 1: 5}}


def read_to(offset: int) -> dict[str, dict[int, int]]:
    return {"p.t": {0: offset}}


@pytest.mark.parametrize(
    ("plans", "fault"),
    [
        ([Plan(1, 100, read_to(1)), Plan(2, 250, read_to(2))], ""),
        ([Plan(1, 100, read_to(0))], "0 us early, has not read p.t/0@0"),
        ([Plan(1, 100, read_to(1)), Plan(2, 250, read_to(1))], "batch 2: 50 us early"),
        ([Plan(1, 250, read_to(2)), Plan(2, 200, read_to(2))], "from 250 back to 200"),
        ([Plan(1, 100, read_to(1)), Plan(1, 100, read_to(1))], "planned 2 times"),
    ],
)
def test_plans_that_are_wrong_are_named(plans: list[Plan], fault: str):
    found = compare_plans(plans, [arrived(A, 0), arrived(B, 1)])
    assert [fault in one for one in found] == ([True] if fault else [])
