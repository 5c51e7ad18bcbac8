"""The fold in the driver: the table of the fold in Spark, row by row."""

from __future__ import annotations

import pytest

from tests.spark.sinks.delta.test_fold import CASES, COLUMNS
from tidegate.spark_consumer.sinks.delta.row_fold import fold_each_row, fold_rows


def change(ordinal, mod, new, *, key=1, us=0):
    row = None if new is None else dict.fromkeys(COLUMNS) | {"id": key} | new
    names = None if new is None or len(new) == 2 else ["id", *new]
    return {
        "ordinal": ordinal,
        "commit_timestamp": us,
        "mod_type": mod,
        "key": {"id": key},
        "new_values": row,
        "new_columns": names,
    }


@pytest.mark.parametrize("name", CASES)
def test_every_case_of_the_table(name):
    history, (action, values, updated) = CASES[name]
    (folded,) = fold_rows([change(n, *step) for n, step in enumerate(history)], list(COLUMNS))
    captured = {
        column: folded.values.get(column)
        for column in COLUMNS
        if column != "id" and folded.captures(column)
    }
    assert (folded.action, captured, folded.updated_after_base) == (action, values, updated)


def test_the_insert_replaces_what_it_did_not_capture():
    changes = [
        change(0, "UPDATE", {"a": "before"}),
        change(1, "DELETE", None),
        change(2, "INSERT", {"b": 4}),
    ]
    (folded,) = fold_rows(changes, list(COLUMNS))
    assert folded.captures("a")
    assert folded.values == {"id": 1, "b": 4}


def test_keys_are_folded_by_themselves_and_know_their_base():
    changes = [
        change(0, "DELETE", None, key=1),
        change(1, "UPDATE", {"b": 1}, key=2),
        change(2, "UPDATE", {"b": 2}, key=1),
    ]
    one, two = fold_rows(changes, list(COLUMNS))
    assert (one.base_ordinal, one.is_after_base(0), one.is_after_base(2)) == (0, False, True)
    assert (two.base_ordinal, two.is_after_base(1)) == (None, True)


@pytest.mark.parametrize("name", CASES)
def test_after_each_change_the_state_is_the_fold_of_the_changes_up_to_it(name):
    changes = [change(n, *step, us=n // 2) for n, step in enumerate(CASES[name][0])]
    for n, one in enumerate(fold_each_row(changes, list(COLUMNS))):
        assert [one.state] == fold_rows(changes[: n + 1], list(COLUMNS))
        following = changes[n + 1 : n + 2]
        assert (one.ordinal, one.mod_type, one.starts_at) == (n, changes[n]["mod_type"], n // 2)
        assert one.ends_at == (following[0]["commit_timestamp"] if following else None)
        assert one.is_first == (n == 0)


def test_each_key_has_an_order_of_its_own():
    changes = [
        change(0, "INSERT", {"a": "x", "b": 1}, key=1, us=5),
        change(1, "INSERT", {"a": "y", "b": 2}, key=2, us=6),
        change(2, "UPDATE", {"b": 3}, key=1, us=7),
    ]
    found = {one.ordinal: one for one in fold_each_row(changes, list(COLUMNS))}
    assert [(found[n].is_first, found[n].ends_at) for n in range(3)] == [
        (True, 7),
        (True, None),
        (False, None),
    ]
    assert (found[0].state.values["b"], found[2].state.values["b"]) == (1, 3)
