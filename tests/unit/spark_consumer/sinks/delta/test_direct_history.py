"""The versions that a small release makes: against a model that knows of no batches."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import deltalake
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_history import merge_rows, stage_rows
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.row_fold import fold_each_row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = ("id", "k")
COLUMNS = ("id", "k", "a", "at")
TYPES = {"id": "long", "k": "string", "a": "string", "at": "timestamp"}
OURS = {"valid_from": "timestamp", "valid_to": "timestamp", "is_current": "boolean"}


def created(path, types=TYPES):
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (OURS | types).items()
    ]
    DirectTable.create(
        path,
        schema=json.dumps({"type": "struct", "fields": fields}),
        properties={},
        metadata="{}",
        partitioned_by=["is_current"],
    )
    return path


def change(ordinal, us, mod, key, new=None):
    """A change of the key (1, key); `new` are the captured columns."""
    names = {"id": 1, "k": key}
    values = None if new is None else dict.fromkeys(COLUMNS) | names | new
    return {
        "ordinal": ordinal,
        "commit_timestamp": us,
        "mod_type": mod,
        "key": names,
        "new_values": values,
        "new_columns": None if new is None or len(new) == 2 else [*KEYS, *new],
    }


def write(path, number, changes):
    """Merge a release; return the ordinals of the UPDATEs that were lost."""
    table = DirectTable(path)
    staged = stage_rows(table, fold_each_row(changes, COLUMNS), columns=COLUMNS, keys=KEYS)
    commit = Commit("query-1", "history", number, number)
    merge_rows(table, staged.rows, columns=COLUMNS, keys=KEYS, commit=commit)
    return staged.lost


def microseconds(time):
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def versions(path):
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    assert all(row["is_current"] == (row["valid_to"] is None) for row in rows)
    found = [
        (row["k"], *(microseconds(row[name]) for name in ("valid_from", "valid_to")), row["a"],
         microseconds(row["at"]))
        for row in rows
    ]  # fmt: skip
    return sorted(found, key=lambda row: (str(row[0]), row[1]))


@pytest.fixture
def path(tmp_path):
    return created(str(tmp_path / "t"))


def test_what_an_update_did_not_capture_is_taken_from_the_version_before_it(path):
    first, second = -62_135_596_799_999_999, 253_402_300_799_999_999
    write(path, 0, [change(0, 10, "INSERT", "x", {"a": "one", "at": first})])
    assert not write(
        path,
        1,
        [
            change(0, 20, "UPDATE", "x", {"a": None}),
            change(1, 30, "UPDATE", "x", {"at": second}),
            change(2, 40, "DELETE", "x"),
            change(3, 50, "INSERT", "x", {"a": "two"}),
        ],
    )
    assert versions(path) == [
        ("x", 10, 20, "one", first),
        ("x", 20, 30, None, first),
        ("x", 30, 40, None, second),
        ("x", 50, None, "two", None),
    ]


def test_several_changes_of_one_commit_time_make_one_version(path):
    changes = [
        change(0, 10, "INSERT", "x", {"a": "one"}),
        change(1, 10, "UPDATE", "x", {"a": "two"}),
        change(2, 10, "INSERT", "y", {"a": "gone"}),
        change(3, 10, "DELETE", "y"),
        change(4, 10, "INSERT", "z", {"a": "ended"}),
    ]
    write(path, 0, changes)
    assert versions(path) == [("x", 10, None, "two", None), ("z", 10, None, "ended", None)]
    write(path, 1, [change(0, 10, "DELETE", "z"), change(1, 20, "DELETE", "x")])
    assert versions(path) == [("x", 10, 20, "two", None)]


def test_an_update_of_an_unknown_or_deleted_row_is_lost_and_opens_nothing(path):
    changes = [
        change(0, 10, "UPDATE", "x", {"a": "one"}),
        change(1, 10, "DELETE", "x"),
        change(2, 20, "UPDATE", "x", {"a": "two"}),
        change(3, 30, "INSERT", "x", {}),
        change(4, 40, "UPDATE", "x", {"a": "three"}),
    ]
    assert write(path, 0, changes) == {0, 2}
    assert versions(path) == [("x", 30, 40, None, None), ("x", 40, None, "three", None)]


def test_keys_are_equal_where_both_are_null(path):
    write(path, 0, [change(n, 10, "INSERT", key, {"a": "a"}) for n, key in enumerate((None, "x"))])
    assert not write(path, 1, [change(0, 20, "UPDATE", None, {"a": "b"})])
    assert versions(path) == [
        (None, 10, 20, "a", None),
        (None, 20, None, "b", None),
        ("x", 10, None, "a", None),
    ]


def test_files_of_versions_that_have_ended_are_not_opened(path):
    for number in range(3):
        mod = "UPDATE" if number else "INSERT"
        write(path, number, [change(0, number + 1, mod, "x", {"a": str(number)})])
    table = deltalake.DeltaTable(path)
    metrics = [commit["operationMetrics"] for commit in table.history(2)]
    assert [one["num_target_files_scanned"] for one in metrics] == [1, 1]
    assert [one["num_target_rows_copied"] for one in metrics] == [0, 0]
    assert len(table.file_uris()) == 3


class Model:
    """One change after the other; it knows neither releases nor versions of no duration."""

    def __init__(self):
        self.rows, self.lost, self.at = {}, [], {}

    def apply(self, place, one):
        key, new = one["key"]["k"], one["new_values"]
        if one["mod_type"] == "UPDATE" and key not in self.rows:
            self.lost.append(place)
        elif one["mod_type"] == "DELETE":
            self.rows.pop(key, None)
        else:
            before = self.rows.get(key) if one["mod_type"] == "UPDATE" else {}
            names = one["new_columns"] or COLUMNS
            self.rows[key] = before | {name: new[name] for name in names}
        # What the table is after the last change of its time.
        self.at[one["commit_timestamp"]] = dict(self.rows)


# Each says how far the clock moves before it, and whether a release ends there.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 2]),
        st.booleans(),
        st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]),
        st.sampled_from([None, "x", "y"]),
        st.fixed_dictionaries(
            {},
            optional={"a": st.sampled_from([None, "p", "q"]), "at": st.sampled_from([None, 7])},
        ),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_at_any_time_each_key_that_was_alive_has_one_row(steps):
    us, changes, cuts = 1, [], []
    for later, is_cut, mod, key, new in steps:
        us += later
        cuts += [len(changes)] * is_cut
        changes.append((us, mod, key, None if mod == "DELETE" else new))
    model, lost = Model(), []
    with tempfile.TemporaryDirectory() as folder:
        path = created(f"{folder}/t")
        for number, (start, end) in enumerate(pairwise([0, *cuts, len(changes)])):
            part = [change(n, *one) for n, one in enumerate(changes[start:end])]
            if not part:
                continue
            for place, one in enumerate(part):
                model.apply((number, place), one)
            lost += sorted((number, ordinal) for ordinal in write(path, number, part))
            assert not DirectTable(path).has(Commit("query-1", "history", number + 1, 0))
        found = versions(path)
    assert lost == model.lost
    rows = {}
    for at in range(us + 2):
        rows = model.at.get(at, rows)
        alive = [row for row in found if row[1] <= at and (row[2] is None or at < row[2])]
        assert {key: (a, time) for key, _, _, a, time in alive} == {
            key: (row.get("a"), row.get("at")) for key, row in rows.items()
        }
        assert len(alive) == len(rows)
    assert all(end is None or start < end for _, start, end, *_ in found)


def test_a_release_is_merged_once(path):
    inserted = [change(0, 10, "INSERT", "x", {"a": "one"})]
    write(path, 0, inserted)
    write(path, 0, inserted)
    assert deltalake.DeltaTable(path).version() == 1
    assert pyarrow.table(deltalake.DeltaTable(path).to_pyarrow_table()).num_rows == 1


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("string", ["a", "b", "c"]),
        ("binary", [b"a", b"b", b"c"]),
        ("boolean", [False, None, True]),
        ("timestamp", [1_999_999, 2_000_001, 2_000_002]),
        ("decimal(38,9)", [Decimal(f"{10**28 + 1}.00000000{n}") for n in range(3)]),
    ],
)
def test_versions_are_found_by_first_keys_of_any_type(tmp_path, kind, keys):
    path = created(str(tmp_path / "t"), {"k": kind, "a": "long"})

    def written(number, mod, *of_keys):
        changes = [
            {
                "ordinal": n,
                "commit_timestamp": number * 10,
                "mod_type": mod,
                "key": {"k": key},
                "new_values": {"k": key, "a": number},
                "new_columns": None,
            }
            for n, key in enumerate(of_keys)
        ]
        table, columns = DirectTable(path), ("k", "a")
        staged = stage_rows(table, fold_each_row(changes, columns), columns=columns, keys=["k"])
        commit = Commit("query-1", "history", number, number)
        merge_rows(table, staged.rows, columns=columns, keys=["k"], commit=commit)
        return {keys.index(changes[ordinal]["key"]["k"]) for ordinal in staged.lost}

    low, middle, high = keys
    assert not written(1, "INSERT", low, high)
    assert written(2, "UPDATE", middle) == {1}
    assert written(3, "UPDATE", low) == written(4, "UPDATE", high) == set()
    assert written(5, "UPDATE", *keys) == {1}
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted((row["a"], row["is_current"]) for row in rows) == [
        *((number, False) for number in (1, 1, 3, 4)),
        *((5, True),) * 2,
    ]
