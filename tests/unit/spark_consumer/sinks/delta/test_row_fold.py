"""The fold in the driver: the table of the fold in Spark, row by row."""

from __future__ import annotations

import pytest

from tests.spark.sinks.delta.test_fold import CASES, COLUMNS
from tidegate.spark_consumer.sinks.delta.row_fold import fold_rows


def change(ordinal, mod, new, *, key=1):
    row = None if new is None else dict.fromkeys(COLUMNS) | {"id": key} | new
    names = None if new is None or len(new) == 2 else ["id", *new]
    return {
        "ordinal": ordinal,
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
