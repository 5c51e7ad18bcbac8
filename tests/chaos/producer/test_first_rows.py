"""The rows at the stream's start, by the commit log: which they are, and where topics have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.producer.first_rows import place_of, with_first_rows
from tests.chaos.producer.topic_log import DataEntry, Topics, order_key_of, origin_of
from tests.chaos.producer.verdict import compare
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place

TOPICS = Topics("p")
AT_US = 50
TOKEN = "tidegate-backfill/read/0/1/xyz"


def logged(at_us, key, mod_type, **values):
    place = Place(at_us, f"tx{at_us}", (0, 1), 0)
    change = LoggedChange("t", place, mod_type, {"K": str(key)}, values, {})
    return LoggedTransaction(at_us, f"tx{at_us}", "", frozenset({"s"}), (change,))


LOG = [
    logged(10, 1, "INSERT", A="a"),
    logged(20, 2, "INSERT", A="b"),
    logged(30, 1, "UPDATE", B="c"),
    logged(40, 3, "INSERT", A="d"),
    logged(AT_US, 3, "DELETE"),
    logged(60, 1, "UPDATE", A="e"),
]


def row(key, sequence, **values):
    return entry(Place(AT_US, "spanner-backfill-0", (0, sequence), 0), key, b"I", TOKEN, values)


def entry(place, key, mod, token, values):
    return DataEntry(
        topic="p.t", topic_partition=0, offset=0, written_ms=0, data_topic="p.t",
        key=str(key).encode(), order_key=order_key_of(place), mod=mod, origin=origin_of(token),
        row={"K": key},
        value={"new_values": {"K": key, **values}, "new_columns": ["K", *values]},
    )  # fmt: skip


RIGHT = [
    row(1, 0, A="a", B="c"),
    row(2, 1, A="b", B=None),
    entry(Place(60, "tx60", (0, 1), 0), 1, b"U", "s", {"A": "e"}),
]


def figures(entries):
    expected = with_first_rows(
        LOG, entries, topics=TOPICS, columns={"t": ("A", "B")}, tokens=[TOKEN, "s"], at_us=AT_US
    )
    return {name: len(texts) for name, texts in compare(TOPICS, expected, entries).items() if texts}


def test_the_rows_of_that_time_then_the_changes_after_it():
    assert figures(RIGHT) == {}


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        (RIGHT[1:], {"lost": 1}),
        ([*RIGHT[:2]], {"lost": 1}),
        ([RIGHT[0], *RIGHT], {"twice": 1}),
        ([*RIGHT[:2], row(2, 2, A="b", B=None), RIGHT[2]], {"never_committed": 1}),
        ([RIGHT[0], row(2, 1, A="b", B="x"), RIGHT[2]], {"unlike_source": 1}),
        ([RIGHT[0], row(2, 1, A="b"), RIGHT[2]], {"unlike_source": 1}),
        ([*RIGHT[:2], row(3, 2, A="d", B=None), RIGHT[2]], {"never_committed": 1}),
        ([RIGHT[2], *RIGHT[:2]], {"out_of_key_order": 1}),
        ([replace(RIGHT[0], origin=origin_of("s")), *RIGHT[1:]], {"unlike_source": 1}),
    ],
    ids=[
        "a row is missing", "a change is missing", "a record twice", "a row of a key twice",
        "another value", "a column less", "a row that was deleted", "a row after a change",
        "another stream partition",
    ],
)  # fmt: skip
def test_each_way_to_be_wrong_is_a_figure(entries, wrong):
    assert figures(entries) == wrong


def test_an_order_key_says_the_place_that_it_was_made_of():
    place = Place(1 << 50, "spanner-backfill-12", (3, 4), 5)

    assert place_of(order_key_of(place)) == place
