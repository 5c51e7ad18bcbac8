"""The models of storage and tables refuse what an object store and Delta refuse."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.delta import MAINTENANCE, ConcurrentCommit, DeltaTable, SchemaMismatch
from tests.simulation.disturbance import Disturbance, GateProfile
from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.errors import WriterReplaced

ID = ("query/sink", 3)


class Meanwhile:
    profile = GateProfile()

    def __init__(self, action):
        self._actions = [action]

    def chance(self, probability):
        return False

    def point(self, *, is_in_commit):
        if self._actions:
            self._actions.pop()()


def table():
    one = DeltaTable()
    one.create(["a"], "made", None)
    return one


def add(one, number, disturbance=None, columns=("a",)):
    one.append([number], columns, ("query/sink", number), "rows", disturbance)


def merge(one, number, disturbance=None):
    def change(rows):
        return {**rows, number: number}

    one.merge(change, ["a"], ("query/sink", number), "rows", disturbance)


def test_a_file_is_created_by_one_of_two_runs():
    store = ObjectStore()
    first, second = (StoreClient(store, "gate", None) for _ in range(2))
    assert first.create("plans/1.json", "first")
    assert not second.create("plans/1.json", "second")
    assert second.read_json("plans/1.json") == "first"


def test_a_younger_writer_replaces_the_older_also_where_listings_are_late():
    late = Disturbance(Random(1), profile=GateProfile(lists_late=1.0))
    store = ObjectStore()
    first, second = (StoreClient(store, "gate", late) for _ in range(2))
    assert (first.take(), second.take()) == (1, 2)
    second.write_json("a", 1)
    with pytest.raises(WriterReplaced):
        first.write_json("a", 2)
    assert first.names("writers") == []


def test_a_write_that_is_killed_leaves_the_former_file():
    store = ObjectStore()
    dying = Disturbance(Random(1), profile=GateProfile(dies_in_rename=1.0))
    client = StoreClient(store, "gate", dying)
    client.take()
    store.put("gate/states/1.json", '"former"')
    with pytest.raises(UnreachableError):
        client.write_json("states/1.json", "new")
    assert client.read_json("states/1.json") == "former"
    assert client.names("states") == ["1.json"]


def test_a_transaction_id_is_taken_once_and_never_after_a_higher_one():
    one = table()
    add(one, 3)
    add(one, 3)
    add(one, 2)
    assert one.added_up_to(one.head) == [3]


@pytest.mark.parametrize("write", [add, merge])
def test_two_writers_of_one_transaction_id_conflict(write):
    one = table()
    with pytest.raises(ConcurrentCommit):
        write(one, 3, Meanwhile(lambda: write(one, 3)))
    assert one.head == 1


def test_an_append_goes_on_top_of_a_rewrite_and_a_merge_does_not():
    one = table()
    add(one, 1, Meanwhile(one.maintain))
    assert one.added_up_to(one.head) == [1]
    with pytest.raises(ConcurrentCommit):
        merge(one, 2, Meanwhile(one.maintain))


def test_nothing_goes_on_top_of_a_change_of_columns_or_metadata():
    one = table()
    one.maintain()
    assert MAINTENANCE[one.head % len(MAINTENANCE)] != "OPTIMIZE"
    with pytest.raises(ConcurrentCommit):
        add(one, 1, Meanwhile(one.maintain))
    with pytest.raises(ConcurrentCommit):
        add(one, 1, Meanwhile(lambda: one.widen(["b"], "wider", None)))
    assert one.columns == ("a", "b")


def test_a_column_that_the_table_lacks_is_refused():
    with pytest.raises(SchemaMismatch):
        add(table(), 1, columns=("a", "b"))


def test_a_version_is_read_as_it_was():
    one = table()
    merge(one, 1)
    before = one.head
    merge(one, 2)
    assert dict(one.rows_at(before)) == {1: 1}
    assert dict(one.rows_at(one.head)) == {1: 1, 2: 2}
