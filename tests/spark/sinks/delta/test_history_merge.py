"""What Spark makes of a release's changes: which versions close and open, and what they hold."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.sinks.delta.history_merge import stage

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "final_1": "INT64"}
TABLE = "valid_from long, valid_to long, is_current boolean, id long, a string, final_1 long"


def staged(kit, current, changes, *, stale=""):
    """Rows by key and ordinal; `current` is (id, a, final_1, stale columns …)."""
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    made = [
        (topic, kit.Change(mod, {"id": key}, new, us=us, sequence=n, every=False))
        for n, (us, mod, key, new) in enumerate(changes)
    ]
    one = kit.release(0, made).tables["bank.t"]
    rows = [(0, None, True, *row) for row in current]
    table = kit.spark.createDataFrame(rows, TABLE + stale)
    frame = stage(one.frame, table, columns=list(COLUMNS), keys=["id"], rows=len(changes))
    found = frame.selectExpr(
        "ordinal",
        "unix_micros(starts_at) as starts",
        "unix_micros(ends_at) as ends",
        "closes",
        "opens",
        "is_lost",
        *(name for name in frame.columns if name.startswith("final_")),
    ).collect()
    return {row["ordinal"]: tuple(row)[1:] for row in found}


def test_several_changes_of_one_commit_time_make_one_version(kit):
    found = staged(
        kit,
        [(1, "before", 0)],
        [
            (10, "UPDATE", 1, {"a": "one"}),
            (10, "UPDATE", 1, {"final_1": 2}),
            (10, "INSERT", 2, {"a": "gone"}),
            (10, "DELETE", 2, None),
            (20, "DELETE", 1, None),
            (20, "INSERT", 1, {"a": "new"}),
        ],
    )
    assert found == {
        0: (10, 10, True, False, False, 1, "one", 0),
        1: (10, 20, False, True, False, 1, "one", 2),
        5: (20, None, False, True, False, 1, "new", None),
    }


def test_what_an_update_did_not_capture_is_taken_from_the_version_before_it(kit):
    found = staged(
        kit,
        [(1, "before", 7), (2, "two", 8)],
        [
            (10, "UPDATE", 1, {"a": None}),
            (20, "UPDATE", 1, {"final_1": None}),
            (30, "UPDATE", 2, {}),
        ],
    )
    assert found == {
        0: (10, 20, True, True, False, 1, None, 7),
        1: (20, None, False, True, False, 1, None, None),
        2: (30, None, True, True, False, 2, "two", 8),
    }


def test_an_update_of_an_unknown_or_deleted_row_is_lost_and_opens_nothing(kit):
    found = staged(
        kit,
        [(1, "before", 7)],
        [
            (10, "DELETE", 1, None),
            (20, "UPDATE", 1, {"a": "x"}),
            (30, "UPDATE", 2, {"a": "x"}),
            (40, "DELETE", 3, None),
        ],
    )
    flags = {ordinal: row[2:5] for ordinal, row in found.items()}
    assert flags == {
        0: (True, False, False),
        1: (False, False, True),
        2: (False, False, True),
    }


def test_a_column_that_no_change_writes_stays_until_an_insert(kit):
    found = staged(
        kit,
        [(1, "before", 7, "kept")],
        [(10, "UPDATE", 1, {"a": "x"}), (20, "INSERT", 1, {"a": "y"})],
        stale=", Left string",
    )
    assert [row[5:] for row in found.values()] == [(1, "x", 7, "kept"), (1, "y", None, None)]
