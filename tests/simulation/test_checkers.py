"""Each checker alone: silent on what is right, and loud on the one thing that it is for."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.checking import CHECKERS
from tests.simulation.history import (
    Claim,
    Committed,
    Fenced,
    Finish,
    History,
    LineageFact,
    Mirror,
    Published,
    QueryStart,
    Released,
    Size,
    SlotEntry,
)
from tidegate.schemas.order_key import OrderKey, order_key_checksum
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    TopicTotals,
)

TOPIC = "t"
FOLDER = Path(__file__).parent / "checkers"


def key(at_us, transaction="x", sequence=0):
    return OrderKey(at_us, transaction, (0, sequence), 0).encode()


ONE, TWO, THREE = key(10), key(20), key(20, sequence=1)


def entry(offset, body):
    return SlotEntry(0, offset, ProgressRecord("e", "w", body))


def history():
    """Return a small run in which all is as it should be: a parent, its child, three changes."""
    child = ChildPartition("child", ("parent",), 15_000)
    totals = (TopicTotals(TOPIC, 1, 1, 1, order_key_checksum(ONE)),)
    changes = [
        Committed(ONE, 10, "a", TOPIC, b"k", token="parent", mod="I", columns={"v": 1}),
        Committed(TWO, 20, "x", TOPIC, b"k", token="child", mod="U", columns={"v": 2}),
        Committed(THREE, 20, "x", TOPIC, b"l", token="child", mod="I", columns={"v": 3}),
    ]
    return History(
        start_us=5,
        slots=1,
        committed=changes,
        lineage={
            "parent": LineageFact("parent", (), 5, 15, ("child",)),
            "child": LineageFact("child", ("parent",), 15, None),
        },
        published=[
            Published(TOPIC, 0, 0, ONE, b"k"),
            Published(TOPIC, 0, 1, TWO, b"k"),
            Published(TOPIC, 0, 2, THREE, b"l"),
        ],
        progress=[
            entry(0, SlotProgress(0, 1, 0, -1, (), ())),
            entry(1, PartitionAnnounced(child, "parent")),
            entry(2, PartitionFinished("parent", (), 5_000, 15_000, (child,), totals)),
            entry(3, SlotProgress(0, 2, 0, -1, (), ())),
        ],
        queries=[QueryStart(1, "w", "parent", 5), QueryStart(3, "w", "child", 15)],
        finishes=[Finish(2, "w", "parent")],
        fenced=[Fenced(2, "w", frozenset({0}), frozenset({0}), True, offset_slots=frozenset({0}))],
        claims=[Claim(0, 1, 15, {TOPIC: {0: 1}}), Claim(1, 1, 20, {TOPIC: {0: 3}})],
        released=[Released(0, 0, -1, 15, (ONE,)), Released(1, 1, 15, 20, (TWO, THREE))],
        mirrors=[
            Mirror(15, {(TOPIC, b"k"): {"v": 1}}),
            Mirror(20, {(TOPIC, b"k"): {"v": 2}, (TOPIC, b"l"): {"v": 3}}),
        ],
        sizes=[Size("things", 3, 3)],
    )


def without(list_, index):
    del list_[index]


def changed(list_, index, **fields):
    list_[index] = replace(list_[index], **fields)


WRONGS = [
    ("nothing_lost", "not in Kafka", lambda h: without(h.published, 1)),
    ("nothing_lost", "not in the output", lambda h: changed(h.released, 1, order_keys=(TWO,))),
    ("nothing_twice", "in Kafka twice", lambda h: h.published.append(
        Published(TOPIC, 0, 9, TWO, b"k"))),
    ("nothing_twice", "in the output twice", lambda h: changed(
        h.released, 1, order_keys=(TWO, TWO, THREE))),
    ("nothing_twice", "made up", lambda h: h.published.append(
        Published(TOPIC, 0, 9, key(30), b"k"))),
    ("key_order", "behind a later one", lambda h: changed(h.published, 0, offset=5)),
    ("key_order", "in two topic partitions", lambda h: changed(h.published, 1, topic_partition=1)),
    ("commit_order", "behind a later one", lambda h: changed(
        h.released, 1, order_keys=(THREE, TWO))),
    ("commit_order", "out of bounds", lambda h: changed(h.released, 0, through_us=9)),
    ("commit_order", "a release is missing", lambda h: changed(h.released, 1, number=2)),
    ("commit_order", "releases overlap", lambda h: changed(h.released, 1, after_us=12)),
    ("whole_transactions", "cut in two", lambda h: (
        changed(h.released, 1, order_keys=(TWO,)),
        h.released.append(Released(2, 2, 20, 30, (THREE,))))),
    ("watermark", "early", lambda h: changed(h.claims, 0, watermark_us=20)),
    ("watermark", "back", lambda h: h.claims.append(Claim(2, 1, 19, {TOPIC: {0: 3}}))),
    ("watermark", "past what is not there", lambda h: without(h.published, 2)),
    ("lineage", "before the parent's marker", lambda h: changed(h.queries, 1, at=2)),
    ("lineage", "without a marker", lambda h: without(h.finishes, 0)),
    ("lineage", "before its start", lambda h: changed(h.queries, 1, start_us=14)),
    ("single_writer", "not the owner", lambda h: changed(h.fenced, 0, owned=frozenset())),
    ("single_writer", "no fence", lambda h: changed(h.fenced, 0, has_checked=False)),
    ("single_writer", "an offset is missing", lambda h: changed(
        h.fenced, 0, offset_slots=frozenset())),
    ("single_writer", "behind the fence", lambda h: changed(h.fenced, 0, after_fence=1)),
    ("single_writer", "a revision twice", lambda h: changed(
        h.progress, 3, record=ProgressRecord("e", "v", SlotProgress(0, 1, 0, -1, (), ())))),
    ("gaps", "a child unknown to the marker", lambda h: h.lineage.update(
        parent=LineageFact("parent", (), 5, 15, ("child", "other")))),
    ("gaps", "a child not announced", lambda h: without(h.progress, 1)),
    ("gaps", "finished while it lives", lambda h: h.lineage.update(
        parent=LineageFact("parent", (), 5, None))),
    ("gaps", "ended at another time", lambda h: h.lineage.update(
        parent=LineageFact("parent", (), 5, 14, ("child",)))),
    ("gaps", "finished twice", lambda h: h.progress.append(h.progress[2])),
    ("completeness", "the totals are others", lambda h: changed(h.committed, 1, token="parent")),
    ("mirrored_rows", "another value", lambda h: changed(
        h.mirrors, 0, rows={(TOPIC, b"k"): {"v": 7}})),
    ("mirrored_rows", "a row is missing", lambda h: changed(h.mirrors, 0, rows={})),
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


def test_every_checker_is_tested():
    assert {name for name, _, _ in WRONGS} == set(CHECKERS)
    assert set(CHECKERS) == {path.stem for path in FOLDER.glob("*.py")}


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
