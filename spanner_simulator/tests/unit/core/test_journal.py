from __future__ import annotations

import dataclasses
import json
import random

import pytest

from spanner_simulator.core.journal import (
    Journal,
    JournaledChange,
    JournaledCommit,
    JournaledSchema,
    JournaledTurn,
    JournalEntry,
    JournalRng,
    entry_from_plain,
    entry_to_plain,
)
from spanner_simulator.core.journaled_rows import journaled_change, replay_change
from spanner_simulator.errors import SpannerError
from unit.core.rows.conftest import Shop, write

ENTRIES: list[JournalEntry] = [
    JournaledSchema("CREATE ..", 5, 2, (2**1056 - 1, 0.25)),
    JournaledSchema("CREATE PROTO ..", 5, 2, (), b"\xff"),
    JournaledCommit(
        6, 1, "tag", False, True, (JournaledChange("T", "UPDATE", ("1", None, 1.5), ("A",)),)
    ),
    JournaledTurn("S", "split", 7, {"token": "t", "key": ["1"]}, (3,)),
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_entries_survive_json(entry: JournalEntry) -> None:
    assert entry_from_plain(json.loads(json.dumps(entry_to_plain(entry)))) == entry


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        ["schema"],
        ["schema", 1, "CREATE ..", []],
        ["schema", 1, "CREATE ..", 2, ["3"], ""],
        ["turn", 1, "S", "explode", {}, []],
        ["commit", 1, 1, "", False, False, [1]],
        ["commit", 1, 1, "", False, False, [], {"t": "3"}],
    ],
)
def test_what_is_no_entry_is_refused(plain: object) -> None:
    with pytest.raises(SpannerError, match="no entry of a journal"):
        entry_from_plain(plain)  # type: ignore[arg-type]  # on purpose


def test_chance_can_be_given_again() -> None:
    chance = JournalRng(random.Random(1))
    chance.begin()
    first = [chance.random(), chance.getrandbits(1056), chance.getrandbits(1)]
    drawn = chance.drawn
    other = JournalRng(random.Random(2))
    other.begin(drawn)
    assert not other.is_spent
    assert [other.random(), other.getrandbits(1056), other.getrandbits(1)] == first
    assert other.is_spent
    assert other.random() not in first
    assert not other.is_spent


def test_a_commit_from_before_identity_columns_is_read() -> None:
    commit = JournaledCommit(1, 2, "", False, False, (), {"t\0k": 3})
    assert entry_from_plain(entry_to_plain(commit)) == commit
    assert entry_from_plain(entry_to_plain(commit)[:-1]) == dataclasses.replace(commit, counts={})


def test_nothing_is_told_while_it_is_replayed() -> None:
    journal = Journal(random.Random(1))
    heard: list[JournalEntry] = []
    journal.note(ENTRIES[0])
    assert not journal.is_heard
    journal.listener = heard.append
    journal.note(ENTRIES[0])
    journal.is_replaying = True
    journal.note(ENTRIES[1])
    assert heard == ENTRIES[:1]


@pytest.fixture
def filled() -> Shop:
    shop = Shop()
    shop.table("T", ["K INT64", "A INT64"], "K")
    shop.index("TA", "T", "A")
    shop.follow()
    shop.commit(write("insert", "T", "K A", ["1", "10"], ["2", "20"]))
    return shop


def test_changes_are_kept_in_plain_form_and_come_back_the_same(filled) -> None:
    filled.apply(
        write("update", "T", "K A", ["1", "11"]),
        write("replace", "T", "K A", ["2", None]),
        write("insert", "T", "K A", ["3", "30"]),
    )
    changes = filled.writes.changes()
    kept = [journaled_change(one) for one in changes]
    other = filled.store.new_writes()
    for one in kept:
        replay_change(other, one)
    assert kept == [
        JournaledChange("T", "UPDATE", ("1", "11"), ("A",)),
        JournaledChange("T", "DELETE", ("2",)),
        JournaledChange("T", "INSERT", ("2", None)),
        JournaledChange("T", "INSERT", ("3", "30")),
    ]
    assert other.changes() == changes
    assert sorted(other.final_rows()) == sorted(filled.writes.final_rows())


@pytest.mark.parametrize(
    "change",
    [
        JournaledChange("Nope", "INSERT", ("1",)),
        JournaledChange("T", "INSERT", ("1",)),
        JournaledChange("T", "INSERT", ("1", "1")),
        JournaledChange("T", "UPDATE", ("9", "1"), ("A",)),
        JournaledChange("T", "DELETE", ("9",)),
    ],
)
def test_what_does_not_fit_is_refused(filled, change: JournaledChange) -> None:
    with pytest.raises(SpannerError, match="does not fit"):
        replay_change(filled.writes, change)
