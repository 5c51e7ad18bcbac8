"""The comparison with the commit log: each way in which topics can be wrong is one figure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.chaos.producer.topic_log import DataEntry, Topics, order_key_of, origin_of
from tests.chaos.producer.verdict import compare
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place

TOPICS = Topics("p")
VALUES = {
    "N": "7",
    "T": "text",
    "F": 0.5,
    "P": "1.5",
    "B": "YWI=",
    "S": "2024-01-01T00:00:00.000001Z",
}
DECODED = {
    "N": 7,
    "T": "text",
    "F": 0.5,
    "P": Decimal("1.5"),
    "B": b"ab",
    "S": datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
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
        key=change.keys["K"].encode(),
        order_key=order_key_of(change.place),
        mod=change.mod_type[:1].encode(),
        origin=origin_of("s"),
        row=row,
        value=value if topic == "p.t" and change.mod_type != "DELETE" else None,
    )


def wrong(transactions, entries, **more):
    found = compare(TOPICS, transactions, entries, **more)
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
