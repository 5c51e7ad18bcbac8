"""Each checker alone: silent on what is right, and loud on the one thing that it is for."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation import history as past
from tests.simulation.checking import CHECKERS
from tidegate.schemas.checksums import blake2b_64, origin_of
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)

TOPIC = "t"
FOLDER = Path(__file__).parent / "checkers"


def key(at_us, transaction="x", sequence=0):
    return OrderKey(at_us, transaction, (0, sequence), 0).encode()


ONE, TWO, THREE = key(10), key(20), key(20, sequence=1)
PARKED, FOLLOWER, REDRIVEN = key(12), key(13), key(14)
PARENT, CHILD = origin_of("parent"), origin_of("child")


FIXED = DataTopic(TOPIC, "id", 1, 7)


def entry(offset, body):
    return past.SlotEntry(0, offset, ProgressRecord("e", "w", body))


def fenced(at, **fields):
    return past.Fenced(at, "w", frozenset({0}), frozenset({0}), True, frozenset({0}), **fields)


def history():
    child = ChildPartition("child", ("parent",), 15_000)
    totals = (TopicTotals(TOPIC, 1, 1, 1, blake2b_64(ONE)),)
    changes = [
        past.Committed(ONE, 10, "a", TOPIC, b"k", token="parent", mod="I", columns={"v": 1}),
        past.Committed(TWO, 20, "x", TOPIC, b"k", token="child", mod="U", columns={"v": 2}),
        past.Committed(THREE, 20, "x", TOPIC, b"l", token="child", mod="I", columns={"v": 3}),
        past.Committed(PARKED, 12, "x", TOPIC, b"p", token="parent", mod="I", columns={"v": 4}),
        past.Committed(FOLLOWER, 13, "x", TOPIC, b"p", token="parent", mod="U", columns={"v": 5}),
        past.Committed(REDRIVEN, 14, "x", TOPIC, b"q", token="parent", mod="I", columns={"v": 6}),
    ]
    return past.History(
        start_us=5,
        slots=1,
        committed=changes,
        lineage={
            "parent": past.LineageFact("parent", (), 5, 15, ("child",)),
            "child": past.LineageFact("child", ("parent",), 15, None),
        },
        published=[
            past.Published(TOPIC, 0, 0, ONE, b"k", mod="I", columns={"v": 1}, origin=PARENT),
            past.Published(TOPIC, 0, 1, TWO, b"k", mod="U", columns={"v": 2}, origin=CHILD),
            past.Published(TOPIC, 0, 2, THREE, b"l", mod="I", columns={"v": 3}, origin=CHILD),
            past.Published(TOPIC, 0, 3, REDRIVEN, b"q", mod="I", columns={"v": 6}, origin=PARENT),
        ],
        progress=[
            entry(0, SlotProgress(0, 1, 0, -1, (), ())),
            entry(1, PartitionAnnounced(child, "parent")),
            entry(2, PartitionFinished("parent", (), 5_000, 15_000, (child,), totals, parked=3)),
            entry(3, SlotProgress(0, 2, 0, -1, (), ())),
        ],
        parked=[
            past.Parked(TOPIC, 0, PARKED, b"p", "SchemaError", "parent", name=2),
            past.Parked(TOPIC, 1, FOLLOWER, b"p", "KeyParked", "parent", name=2),
            past.Parked(TOPIC, 2, REDRIVEN, b"q", "SchemaError", "parent", name=3),
        ],
        put_back=[past.PutBack(TOPIC, 3, REDRIVEN, b"q")],
        tombstones=True,
        parked_keys_max=2,
        full=[past.Full("parent", 12, frozenset({1, 3}))],
        poison={PARKED, REDRIVEN},
        queries=[past.QueryStart(1, "w", "parent", 5), past.QueryStart(3, "w", "child", 15)],
        finishes=[past.Finish(2, "w", "parent")],
        are_tables_recorded=True,
        fenced=[
            fenced(2, topics=frozenset(topics), fixed=fixed)
            for topics, fixed in (((), (FIXED,)), ((TOPIC,), ()), ((TOPIC,), (FIXED,)))
        ],
        claims=[past.Claim(0, 1, 15, {TOPIC: {0: 1}}), past.Claim(1, 1, 20, {TOPIC: {0: 3}})],
        views=[past.View(0, 2, {})],
        released=[past.Released(0, 0, -1, 15, (ONE,)), past.Released(1, 1, 15, 20, (TWO, THREE))],
        mirrors=[
            past.Mirror(15, {(TOPIC, b"k"): {"v": 1}}),
            past.Mirror(20, {(TOPIC, b"k"): {"v": 2}, (TOPIC, b"l"): {"v": 3}}),
        ],
        manifests=[
            past.Manifested(0, -1, 15, 1, {"m/t": 1}),
            past.Manifested(1, 15, 20, 2, {"m/t": 2}),
        ],
        mirror_sights=[
            past.MirrorSight(0, 100, 50, 0, 0),
            past.MirrorSight(1, 149, 50, 1, 0),
            past.MirrorSight(2, 150, 50, 1, 1, has_ended=True),
        ],
        value_schemas={TOPIC: {2: {"v": "long"}, 5: {"v": "long", "w": "string"}}},
        captured={ONE: {"v": 1}, TWO: {"v": 2}, THREE: {"v": 3}},
        sizes=[past.Size("things", 3, 3)],
        limits=[past.Limit(0, TOPIC, 500), past.Limit(30, TOPIC, 900)],
        refusals=[past.Refusal(at, "w", "w-1", 0, TOPIC, 700, 900, ("k", 20)) for at in (1, 3)],
        too_large=[past.TooLargeStop(25, "w", TOPIC, 700, 500, 20)],
    )


def without(list_, index):
    del list_[index]


def changed(list_, index, **fields):
    list_[index] = replace(list_[index], **fields)


def read_in_a_chunk(history, columns, *, at_us):
    history.read_beside = {"beside": TOPIC}
    row = past.Published("beside", 0, 0, key(at_us), b"k", mod="I", columns=columns)
    history.published.append(row)


def said(history, body):
    history.progress.append(entry(4, body))


def resaid(history, index, body):
    changed(history.progress, index, record=ProgressRecord("e", "w", body))


def parent_ends(history, *end):
    history.lineage["parent"] = past.LineageFact("parent", (), 5, *end)


def grown(history, *stops):
    history.ground.append(GROWN)
    history.stops += stops


VECTOR = (TopicOffset(TOPIC, 0, 2),)
GAP = PartitionGap("child", 16, 20, "ops", 1)
GROWN = past.GroundFault(9, "a topic grows", frozenset({TOPIC}), frozenset({"TopicsChangedError"}))
STOPPED = past.Stop(
    9, "w", "TopicsChangedError", 2, f"topic {TOPIC} had 1 topic partitions, it has 2"
)


WRONGS = [
    ("ground", "nobody stops", lambda h: h.ground.append(GROWN)),
    ("ground", "a stop before the fault", lambda h: grown(h, replace(STOPPED, at=8))),
    ("ground", "the topic is not named", lambda h: grown(h, replace(STOPPED, text="changed"))),
    ("ground", "another error", lambda h: grown(h, replace(STOPPED, error="ProducerError"))),
    ("ground", "another exit code", lambda h: h.stops.append(replace(STOPPED, exit_code=1))),
    ("ground", "a worker lives on", lambda h: (grown(h, STOPPED), h.survivors.append("w2"))),
    ("ground", "no interval", lambda h: h.stops.append(
        past.Stop(9, "w", "PositionExpired", 1, "outside retention (lost_from=5)"))),
    ("nothing_lost", "not in Kafka", lambda h: without(h.published, 1)),
    ("nothing_lost", "not in the output", lambda h: changed(h.released, 1, order_keys=(TWO,))),
    ("nothing_lost", "put back, read, and not in the output", lambda h: changed(
        h.claims, 0, read={TOPIC: {0: 4}})),
    ("nothing_twice", "put back twice", lambda h: h.published.append(
        past.Published(TOPIC, 0, 4, REDRIVEN, b"q"))),
    ("nothing_twice", "put back, and late twice", lambda h: h.late.extend((REDRIVEN, REDRIVEN))),
    ("nothing_twice", "in Kafka twice", lambda h: h.published.append(
        past.Published(TOPIC, 0, 9, TWO, b"k"))),
    ("nothing_twice", "in the output twice", lambda h: changed(
        h.released, 1, order_keys=(TWO, TWO, THREE))),
    ("nothing_twice", "made up", lambda h: h.published.append(
        past.Published(TOPIC, 0, 9, key(30), b"k"))),
    ("chunk_rows", "the row of another time", lambda h: read_in_a_chunk(h, {"v": 2}, at_us=19)),
    ("chunk_rows", "a row that there is not yet", lambda h: read_in_a_chunk(h, {"v": 1}, at_us=9)),
    ("key_order", "behind a later one", lambda h: changed(h.published, 0, offset=5)),
    ("key_order", "in two topic partitions", lambda h: changed(h.published, 1, topic_partition=1)),
    ("commit_order", "behind a later one", lambda h: changed(
        h.released, 1, order_keys=(THREE, TWO))),
    ("commit_order", "ordinals with a gap", lambda h: changed(h.released, 1, ordinals=(0, 2))),
    ("commit_order", "ordinals that repeat", lambda h: changed(h.released, 1, ordinals=(0, 0))),
    ("commit_order", "out of bounds", lambda h: changed(h.released, 0, through_us=9)),
    ("commit_order", "a release is missing", lambda h: changed(h.released, 1, number=2)),
    ("commit_order", "releases overlap", lambda h: changed(h.released, 1, after_us=12)),
    ("whole_transactions", "cut in two", lambda h: (changed(h.released, 1, order_keys=(TWO,)),
        h.released.append(past.Released(2, 2, 20, 30, (THREE,))))),
    ("watermark", "early", lambda h: changed(h.claims, 0, watermark_us=20)),
    ("watermark", "back", lambda h: h.claims.append(past.Claim(2, 1, 19, {TOPIC: {0: 3}}))),
    ("watermark", "past the end", lambda h: setattr(h, "end_us", 19)),
    ("watermark", "past what is not there", lambda h: without(h.published, 2)),
    ("lineage", "before the parent's marker", lambda h: changed(h.queries, 1, at=2)),
    ("lineage", "without a marker", lambda h: without(h.finishes, 0)),
    ("lineage", "before its start", lambda h: changed(h.queries, 1, start_us=14)),
    ("single_writer", "not the owner", lambda h: changed(h.fenced, 0, owned=frozenset())),
    ("single_writer", "no fence", lambda h: changed(h.fenced, 0, has_checked=False)),
    ("single_writer", "an offset is missing", lambda h: changed(
        h.fenced, 0, offset_slots=frozenset())),
    ("single_writer", "behind the fence", lambda h: changed(h.fenced, 0, after_fence=1)),
    ("single_writer", "a revision twice", lambda h: resaid(
        h, 3, SlotProgress(0, 1, 0, -1, (), ()))),
    ("gaps", "a child unknown to the marker", lambda h: parent_ends(h, 15, ("child", "other"))),
    ("gaps", "a child not announced", lambda h: without(h.progress, 1)),
    ("gaps", "finished while it lives", lambda h: parent_ends(h, None)),
    ("gaps", "ended at another time", lambda h: parent_ends(h, 14, ("child",))),
    ("gaps", "finished twice", lambda h: h.progress.append(h.progress[2])),
    ("pauses", "disobeyed", lambda h: h.disobeyed.append("w reads in a pause")),
    ("pauses", "published after it was said that nothing is", lambda h: (
        h.controls.append(past.Control(90, 1, is_pause=True)),
        h.fenced.append(fenced(91, paused=((0, 1),))),
        h.fenced.append(fenced(92, with_data=frozenset({0}))))),
    ("accepted_gaps", "not accepted", lambda h: said(h, GAP)),
    ("accepted_gaps", "recorded twice", lambda h: (h.accepted.append(past.AcceptedGap(GAP, 20)),
        h.progress.extend((entry(4, GAP), entry(5, GAP))))),
    ("accepted_gaps", "longer than it has to be", lambda h: (
        h.accepted.append(past.AcceptedGap(GAP, 19)), said(h, GAP))),
    ("accepted_gaps", "no manifest names it", lambda h: (
        h.accepted.append(past.AcceptedGap(GAP, 20)), said(h, GAP))),
    ("accepted_gaps", "named by a manifest alone", lambda h: changed(h.manifests, 1, gaps=(GAP,))),
    ("accepted_gaps", "published although it was given up", lambda h: (
        h.accepted.append(past.AcceptedGap(GAP, 20)), said(h, GAP),
        changed(h.committed, 0, token="child", commit_timestamp_us=18))),
    ("completeness", "the totals are others", lambda h: changed(h.committed, 1, token="parent")),
    ("origins", "another stream partition", lambda h: changed(h.published, 1, origin=PARENT)),
    ("origins", "no header", lambda h: changed(h.published, 1, origin=b"")),
    ("origins", "a change that its marker counts is not in Kafka", lambda h: without(
        h.published, 0)),
    ("origins", "a change in Kafka that no marker counts", lambda h: h.published.append(
        past.Published(TOPIC, 0, 9, key(11), b"k", origin=PARENT))),
    ("mirrored_rows", "another value", lambda h: changed(
        h.mirrors, 0, rows={(TOPIC, b"k"): {"v": 7}})),
    ("mirrored_rows", "a row is missing", lambda h: changed(h.mirrors, 0, rows={})),
    ("mirror_cadence", "older than the setting says", lambda h: changed(
        h.mirror_sights, 1, decided_us=150)),
    ("mirror_cadence", "older at the end", lambda h: changed(
        h.mirror_sights, 2, mirror=0, decided_us=149)),
    ("mirror_cadence", "no cut", lambda h: changed(h.mirror_sights, 0, mirror=None)),
    ("mirror_cadence", "ahead of the releases", lambda h: changed(h.mirror_sights, 1, mirror=2)),
    ("mirror_cadence", "goes back", lambda h: h.mirror_sights.append(
        past.MirrorSight(3, 160, 50, 1, 0))),
    ("captured_values", "another value", lambda h: h.captured.update({TWO: {"v": 1}})),
    ("captured_values", "a column is missing", lambda h: h.captured.update({TWO: {}})),
    ("manifests", "a table goes back", lambda h: changed(h.manifests, 1, versions={"m/t": 0})),
    ("manifests", "a table is missing", lambda h: changed(h.manifests, 1, versions={})),
    ("manifests", "another size", lambda h: changed(h.manifests, 1, rows=3)),
    ("one_plan", "planned twice", lambda h: h.claims.append(past.Claim(1, 2, 20, {TOPIC: {0: 3}}))),
    ("values", "another value", lambda h: changed(h.published, 1, columns={"v": 7})),
    ("values", "an absent column written as NULL", lambda h: changed(
        h.published, 1, columns={"v": 2, "w": None})),
    ("values", "another kind", lambda h: changed(h.published, 1, mod="D")),
    ("values", "another key", lambda h: changed(h.published, 1, key=b"m")),
    ("schema_growth", "a field is gone", lambda h: h.value_schemas[TOPIC].update(
        {7: {"v": "long"}})),
    ("schema_growth", "another type", lambda h: h.value_schemas[TOPIC].update(
        {7: {"v": "string", "w": "string"}})),
    ("query_pace", "again and again", lambda h: h.queries.extend(
        past.QueryStart(9, "w", "child", 15, at_us=second * 4_000_000, holding="w 1")
        for second in range(13))),
    ("query_turns", "queued for too long", lambda h: h.queued.update(child=30_000_001)),
    ("query_turns", "paused for too long", lambda h: h.paused.update(child=3_000_001)),
    ("fleet_drift", "read on far ahead", lambda h: h.ahead.update(child=1_000_001)),
    ("fleet_views", "what a slot has not said", lambda h: h.fleet_sights.append(
        past.FleetSight("w", {0: 15}, {0: 4}, {0: 4}))),
    ("others_advance", "one is held up", lambda h: h.held_up.append("child")),
    ("vectors", "an entry is gone", lambda h: resaid(h, 0, SlotProgress(0, 1, 0, -1, VECTOR, ()))),
    ("views", "an entry too few", lambda h: resaid(h, 3, SlotProgress(0, 2, 0, -1, VECTOR, ()))),
    ("views", "an entry of an earlier revision", lambda h: resaid(
        h, 0, SlotProgress(0, 1, 0, -1, VECTOR, ()))),
    ("views", "a revision that was never written", lambda h: changed(h.views, 0, revision=3)),
    ("chains", "a revision is left out", lambda h: said(
        h, SlotChanges(0, 4, 1, 0, -1, (), None, 0))),
    ("chains", "another number of open tokens", lambda h: said(
        h, SlotChanges(0, 3, 1, 0, -1, (), None, 1))),
    ("chains", "a token is slower than the slowest", lambda h: said(
        h, SlotChanges(0, 3, 1, 0, -1, (), SlowestToken("a", 6), 1, added=(
            TokenSnapshot("a", 1, (), (), 5, number=0),)))),
    ("chains", "the minute has another vector", lambda h: said(
        h, SlotWatermark(0, 2, 0, -1, VECTOR, None, 0))),
    ("undeliverable", "beyond every known limit", lambda h: changed(
        h.refusals, 0, known_bytes_max=699)),
    ("undeliverable", "tried four times", lambda h: h.refusals.extend(
        replace(h.refusals[0], at=at) for at in (4, 5, 6))),
    ("undeliverable", "tried four times with commits in between", lambda h: (
        h.refusals.extend(replace(h.refusals[0], at=at) for at in (95, 97)),
        h.fenced.extend(fenced(at) for at in (94, 96)))),
    ("undeliverable", "stopped below the limit", lambda h: changed(h.too_large, 0, size_bytes=500)),
    ("undeliverable", "stopped for no commit", lambda h: changed(
        h.too_large, 0, commit_timestamp_us=21)),
    ("undeliverable", "stopped for a limit that was raised", lambda h: changed(
        h.limits, 1, at_us=19)),
    ("parking", "parked twice", lambda h: h.parked.append(h.parked[1])),
    ("parking", "parked and published", lambda h: h.published.append(
        past.Published(TOPIC, 0, 3, PARKED, b"p"))),
    ("parking", "parked, and never committed", lambda h: h.parked.append(
        past.Parked(TOPIC, 4, key(15), b"p", "KeyParked", "parent"))),
    ("parking", "no poison", lambda h: h.poison.clear()),
    ("parking", "a good change parked alone", lambda h: without(h.parked, 0)),
    ("parking", "a good change of before parked", lambda h: changed(
        h.parked, 1, order_key=key(11))),
    ("parking", "behind a later change", lambda h: (
        changed(h.parked, 0, offset=1), changed(h.parked, 1, offset=0))),
    ("parking", "put back, and not published", lambda h: without(h.published, 3)),
    ("parking", "put back, and never parked", lambda h: h.put_back.append(
        past.PutBack(TOPIC, 4, REDRIVEN, b"q"))),
    ("parking", "a key that was put back not released", lambda h: changed(
        h.parked, 1, topic=TOPIC, key=b"q", offset=4, order_key=key(15))),
    ("parking", "a later change published", lambda h: h.published.append(
        past.Published(TOPIC, 0, 4, key(15), b"p"))),
    ("parking", "another count in the marker", lambda h: changed(h.progress, 2, record=replace(
        h.progress[2].record, body=replace(h.progress[2].record.body, parked=1)))),
    ("parking", "another count in the slot", lambda h: said(h, SlotProgress(0, 3, 0, -1, (), (
            TokenSnapshot("child", 1, (), (), 5, parked=1),)))),
    ("parking", "parked for a column that was refused in another topic", lambda h: (
        h.poison.clear(), setattr(h, "refused_columns", {"u": {"v"}}))),
    ("parking", "parked for another table that was refused", lambda h: (
        h.poison.clear(), setattr(h, "refused_tables", {"u"}))),
    ("parked_limit", "a key of its own beyond the limit", lambda h: said(
        h, SlotProgress(0, 3, 0, -1, (), (
            TokenSnapshot("child", 1, (), (), 5, parked_keys=(1, 2, 3)),)))),
    ("parked_limit", "stopped with room for all keys of the record", lambda h: changed(
        h.full, 0, keys=frozenset({1}))),
    ("parked_limit", "stopped by a key that it holds", lambda h: changed(
        h.full, 0, keys=frozenset({2, 3}))),
    ("ground", "a worker that goes on without a right", lambda h: h.denials.extend(
        past.Denial(at, "w", "w-1") for at in (1, 2))),
    ("tables", "not recorded", lambda h: without(h.fenced, 0)),
    ("tables", "recorded in the same transaction", lambda h: (
        without(h.fenced, 0), changed(h.fenced, 0, fixed=(FIXED,)))),
    ("tables", "recorded with another number", lambda h: changed(
        h.fenced, 2, fixed=(replace(FIXED, topic_partitions=2),))),
    ("tombstones", "behind an insert", lambda h: changed(h.published, 0, has_tombstone=True)),
    ("tombstones", "none behind a delete", lambda h: changed(
        h.published, 1, mod="D", has_tombstone=False)),
    ("tombstones", "in a stream without them", lambda h: (
        setattr(h, "tombstones", False), changed(h.published, 1, mod="D", has_tombstone=True))),
    ("tombstones", "on its own", lambda h: h.lone_tombstones.append((TOPIC, 0, 4))),
    ("liveness", "something did not come", lambda h: h.unhealed.append("the watermark")),
    ("bounded_memory", "too large", lambda h: changed(h.sizes, 0, largest=4)),
    ("soundness", "something broke", lambda h: h.broken.append("an invariant")),
]  # fmt: skip


@pytest.mark.parametrize("name", CHECKERS)
def test_what_is_right_passes(name):
    assert not list(CHECKERS[name](history()))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name, _, wrong in WRONGS],
    ids=[f"{name}: {what}" for name, what, _ in WRONGS],
)
def test_what_is_wrong_is_found(name, wrong):
    broken = history()
    wrong(broken)

    assert list(CHECKERS[name](broken))


@pytest.mark.parametrize(
    ("what", "where"), [("refused_columns", {TOPIC: {"v"}}), ("refused_tables", {TOPIC})]
)
def test_what_the_registry_has_refused_is_poison(what, where):
    refused = history()
    refused.poison.clear()
    setattr(refused, what, where)

    assert not list(CHECKERS["parking"](refused))


def sharing_a_name():
    """A finished stream partition without the parent's changes, and the parent's name."""
    shared = history()
    totals = (TopicTotals(TOPIC, 1, 2, 1, (blake2b_64(TWO) + blake2b_64(THREE)) % 2**64),)
    shared.progress.append(entry(4, PartitionFinished("child", (), 15_000, 30_000, (), totals)))
    return shared


def test_stream_partitions_of_one_name_are_proved_together(monkeypatch):
    """A collision hides nothing: the changes of both add up to the markers of both."""
    monkeypatch.setattr("tests.simulation.checkers.p4_watermark.origin_of", lambda _: PARENT)
    right, wrong, waiting = sharing_a_name(), sharing_a_name(), history()
    for one in (right, wrong, waiting):
        for number in range(3):
            changed(one.published, number, origin=PARENT)
    without(wrong.published, 2)

    assert not list(CHECKERS["origins"](right))
    assert [violation.subject for violation in CHECKERS["origins"](wrong)] == ["parent"]
    assert not list(CHECKERS["origins"](waiting))  # the child's marker is still to come


def test_markers_of_two_kinds_of_checksums_are_compared_by_number(monkeypatch):
    monkeypatch.setattr("tests.simulation.checkers.p4_watermark.origin_of", lambda _: PARENT)
    mixed = sharing_a_name()
    body = mixed.progress[4].record.body
    changed(mixed.progress, 4, record=ProgressRecord(
        "e", "w", replace(body, checksums=ChecksumKind.XXHASH_64)))  # fmt: skip
    for number in range(3):
        changed(mixed.published, number, origin=PARENT)

    assert not list(CHECKERS["origins"](mixed))
    without(mixed.published, 2)
    assert list(CHECKERS["origins"](mixed))


def fleet():
    """A slot with one stream partition, of which another one is announced and the first stops."""

    def snapshot(revision, includes, *tokens):
        return SlotProgress(0, revision, 0, includes, (), tokens)

    one = TokenSnapshot("one", 1, (), (), 9)
    other = ChildPartition("other", ("one",), 12_000)
    bodies = [
        snapshot(1, -1, one),
        snapshot(2, -1, replace(one, watermark_us=15)),
        PartitionAnnounced(other, "one"),
        snapshot(3, -1, replace(one, watermark_us=16)),
        snapshot(4, -1, replace(one, stopped="why")),
        snapshot(5, 2, replace(one, stopped="why")),
    ]
    return past.History(
        start_us=1,
        slots=1,
        progress=[entry(offset, body) for offset, body in enumerate(bodies)],
        fleet_reads=[past.FleetRead("w", {0: 15}, {0: 2}), past.FleetRead("w", {0: None}, {0: 6})],
        fleet_sights=[
            past.FleetSight("w", {0: 9}, {0: 1}, {0: 2}),
            past.FleetSight("w", {0: 15}, {0: 1}, {0: 2}),
            past.FleetSight("w", {0: 11}, {0: 4}, {0: 5}),
            past.FleetSight("w", {}, {0: 6}, {0: 6}),
        ],
    )


def test_what_is_committed_and_recent_is_a_view():
    assert not list(CHECKERS["fleet_views"](fleet()))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda h: changed(h.fleet_reads, 0, lowest_us={0: 16}),
        lambda h: changed(h.fleet_reads, 0, ends={0: 1}),
        lambda h: changed(h.fleet_sights, 0, ends_before={0: 2}),
        lambda h: changed(h.fleet_sights, 1, ends={0: 1}),
        lambda h: changed(h.fleet_sights, 2, lowest_us={0: 16}),
        lambda h: changed(h.fleet_sights, 2, lowest_us={}),
        lambda h: changed(h.fleet_sights, 3, lowest_us={0: 9}),
    ],
    ids=[
        "more than was ever committed", "not committed when it was read", "too old", "not yet said",
        "without what was announced", "nothing moves", "a stopped one holds the others",
    ],
)  # fmt: skip
def test_other_views_are_found(wrong):
    broken = fleet()
    wrong(broken)

    assert len(list(CHECKERS["fleet_views"](broken))) == 1


def test_what_is_published_before_a_slot_is_paused_or_after_the_pause_is_right():
    history = past.History(start_us=0, slots=2)
    history.controls += [past.Control(1, 1, is_pause=True), past.Control(5, 2, is_pause=False)]
    data = frozenset({0})
    history.fenced += [
        fenced(2, with_data=data, paused=((0, 1),)),
        fenced(3, with_data=frozenset({1})),
        replace(fenced(4, with_data=data), worker="redrive"),
        fenced(6, with_data=data),
    ]
    assert not list(CHECKERS["pauses"](history))


def test_what_lies_in_an_accepted_gap_is_not_missed():
    run = history()
    gap = replace(GAP, from_us=20, until_us=21)
    run.accepted.append(past.AcceptedGap(gap, 21))
    run.progress.append(entry(4, gap))
    changed(run.manifests, 1, gaps=(gap,))
    without(run.published, 1)
    changed(run.released, 1, order_keys=(THREE,))
    assert run.given_up == {TWO}
    names = ("accepted_gaps", "nothing_lost", "watermark")
    assert not {name: found for name in names if (found := list(CHECKERS[name](run)))}


def test_every_checker_is_tested():
    assert {name for name, _, _ in WRONGS} == set(CHECKERS)
    assert len(CHECKERS) == 38


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_checker_knows_nothing_but_the_contract(path):
    """What is checked must not help with checking it: `schemas` and the history, nothing else."""
    tree = ast.parse(path.read_text())
    imported = {
        node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    } | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }

    foreign = {
        name
        for name in imported
        if name.split(".")[0] in ("tests", "tidegate")
        and not name.startswith("tidegate.schemas")
        and name != "tests.simulation.history"
    }
    assert not foreign


def test_the_history_knows_nothing_but_the_contract():
    assert "tidegate.producer" not in FOLDER.with_name("history.py").read_text()
    assert "tidegate.spark_consumer" not in FOLDER.with_name("history.py").read_text()


def test_a_row_of_its_chunks_time_is_in_its_place_wherever_it_was_published():
    right = history()
    read_in_a_chunk(right, {"v": 1}, at_us=19)

    assert list(CHECKERS["chunk_rows"](right)) == []
