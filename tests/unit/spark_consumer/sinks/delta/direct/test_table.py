"""Tables written by delta-rs: one commit for each release, also beside another writer."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from tests.unit.spark_consumer.sinks.delta_building import (
    KEYS_OF_TYPE,
    MOMENT,
    by_text,
    created,
    rows_of,
)
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.merge.fold import FoldedRow
from tidegate.spark_consumer.sinks.merge.mirror import merge_folded, unmatched_updates
from tidegate.spark_consumer.sinks.tables import Commit, for_each_table, named_refusals

FIRST, SECOND = (Commit("query-1", "changelog", n, 1_000 * n) for n in range(2))


def merging(key, *columns):
    """Clauses that insert a row, or update the columns of the one with the same key."""
    return {
        "same_row": f'(t."{key}" = s.{key})',
        "is_deleted": "false",
        "updated": {f'"{name}"': f"s.{name}" for name in columns},
        "is_inserted": "true",
        "inserted": {f'"{name}"': f"s.{name}" for name in (key, *columns)},
    }


MERGED = merging("id", "a")


@pytest.fixture
def path(tmp_path):
    return created(tmp_path / "a lake é+" / "t", {"id": "long", "a": "string"})


def append(path, number, commit):
    table = DirectTable(path)
    table.append(table.rows([{"id": number, "a": "x"}], ["id", "a"]), commit=commit)


def test_a_merge_that_changes_nothing_makes_no_commit(path):
    table = DirectTable(path)
    rows = table.rows([{"id": 1}], ["id", "a"])
    table.merge(rows, **MERGED | {"is_inserted": "false"}, commit=FIRST)
    assert DeltaTable(path).version() == 0


def test_nulls_are_found_too_and_a_version_stays_as_it_was(path):
    table = DirectTable(path)
    rows = [{"id": None, "a": "n"}, {"id": 1}, {"id": 2}]
    table.append(table.rows(rows, ["id", "a"]), commit=FIRST)
    append(path, 7, SECOND)
    before = DirectTable(path, version=1)
    found = before.find_rows("id", before.values("id", [None, 2, 7]), ["id"]).to_pylist()
    assert sorted(found, key=str) == [{"id": 2}, {"id": None}]
    ((file, size),) = before.files()
    assert 0 < size == Path(unquote(file)).stat().st_size


def test_a_partition_has_files_and_rows_of_its_own(tmp_path):
    types = {"id": "long", "is_new": "boolean"}
    path = created(tmp_path / "t", types, partitioned_by=["is_new"])
    assert DirectTable(path).files({"is_new": True}) == []
    rows = pyarrow.table({"id": range(3), "is_new": [False, True, True]})
    write_deltalake(path, rows, mode="append")
    table = DirectTable(path)
    new = table.files({"is_new": True})
    assert (len(table.files()), len(new)) == (2, 1)
    assert "is_new=true" in new[0][0]
    wanted = table.values("id", [0, 1])
    assert table.find_rows("id", wanted, ["id"], part={"is_new": True}).to_pylist() == [{"id": 1}]


@pytest.fixture(params=KEYS_OF_TYPE)
def keyed(request, tmp_path):
    """A table with a key of each type, and three values of the key."""
    path = created(tmp_path / "t", {"k": request.param, "n": "long"})
    return path, KEYS_OF_TYPE[request.param]


@pytest.mark.parametrize("is_merged", [True, False])
def test_the_log_has_bounds_only_where_they_are_true_for_every_reader(tmp_path, is_merged):
    long = "\U0010ffff" * 100
    row = {"n": Decimal("1e28"), "f": float("nan"), "id": 1, "text": long, "at": MOMENT, "l": ["x"]}
    listed = {"type": "array", "elementType": "string", "containsNull": True}
    kinds = ("decimal(38,9)", "double", "long", "string", "timestamp", listed)
    types = dict(zip(row, kinds, strict=True))
    inner = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    path = created(tmp_path / "t", types | {"r": {"type": "struct", "fields": inner}})
    table = DirectTable(path)
    rows = table.rows([{**row, "r": row}] * 2, [*row, "r"])
    if is_merged:
        table.merge(rows, **merging("id", "n", "f", "text", "at", "l", "r"), commit=FIRST)
    else:
        table.append(rows, commit=FIRST)
    (log,) = Path(path, "_delta_log").glob("*1.json")
    (add,) = [one["add"] for one in map(json.loads, log.read_text().splitlines()) if "add" in one]
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 2
    time = "2026-05-01T12:00:00.999Z"
    assert stats["minValues"] == {"at": time, "id": 1, "text": "\U0010ffff" * 16}
    assert stats["maxValues"] == {"at": time, "id": 1, "text": long}
    ((file, _),) = DirectTable(path).files()
    columns = parquet.read_metadata(file).row_group(0)
    found = [columns.column(n) for n in range(columns.num_columns)]
    assert {one.path_in_schema for one in found if one.is_stats_set} == {"id", "text", "at"}
    assert {one.compression for one in found} == {"SNAPPY"}


# Names that SQL knows, and those of the rows' own columns.
FOLDED_COLUMNS = ("Id", "select", "action", "key_0")


def folded(action, number, text, **more):
    key = {"Id": number, "select": text}
    values = more.pop("values", {})
    return FoldedRow(key, action, values={**key, **values}, **more)


FOLDED = [
    folded("patch", None, "x", values={"key_0": 10}),
    folded("patch", 1, None, values={"action": None}),
    folded("delete", 1, "x", base_ordinal=0),
    folded("replace", 2, "y", values={"action": "new"}, base_ordinal=0),
    folded("replace", None, None, values={"key_0": 5}, base_ordinal=0),
    folded("patch", 9, "z", values={"key_0": 6}),
    folded("delete", 8, "z", base_ordinal=0, updated_after_base=True),
    folded("delete", 7, "z", base_ordinal=0),
]


@pytest.mark.parametrize("has_key_columns_only", [False, True])
def test_a_merge_patches_captured_columns_and_finds_updates_without_a_row(
    tmp_path, has_key_columns_only
):
    path = created(
        tmp_path / "t", dict(zip(FOLDED_COLUMNS, ("long", "string", "string", "long"), strict=True))
    )
    keys = [(None, "x"), (1, "x"), (1, None), (2, "y")]
    rows = [dict(zip(FOLDED_COLUMNS, (*key, "a", n), strict=True)) for n, key in enumerate(keys)]
    table = DirectTable(path)
    table.append(table.rows(rows, FOLDED_COLUMNS), commit=Commit("q", "mirror", 0, 1))
    commit = Commit("q", "mirror", 1, 1)
    if has_key_columns_only:
        bare = [
            FoldedRow(
                {name: row.key.get(name) for name in FOLDED_COLUMNS}, row.action, values=row.key
            )
            for row in FOLDED
        ]
        merge_folded(
            DirectTable(path), bare, columns=FOLDED_COLUMNS, keys=FOLDED_COLUMNS, commit=commit
        )
        assert DirectTable(path).has(commit)
        return
    merge_folded(
        DirectTable(path), FOLDED, columns=FOLDED_COLUMNS, keys=FOLDED_COLUMNS[:2], commit=commit
    )
    # Keys are equal where both are NULL, and only captured columns change.
    assert by_text(rows_of(path)) == [
        (1, None, None, 2), (2, "y", "new", None), (None, "x", "a", 10), (None, None, None, 5),
    ]  # fmt: skip
    lost = unmatched_updates(DirectTable(path), FOLDED, keys=FOLDED_COLUMNS[:2])
    assert [row.key["Id"] for row in lost] == [9, 8]


def test_updates_of_unknown_rows_are_found_by_first_keys_of_any_type(keyed):
    path, (low, middle, high) = keyed

    def merged(number, action, *keys):
        rows = [FoldedRow({"k": key}, action, values={"k": key, "n": number}) for key in keys]
        commit = Commit("query-1", "mirror", number, 1)
        merge_folded(DirectTable(path), rows, columns=("k", "n"), keys=["k"], commit=commit)
        return [row.key["k"] for row in unmatched_updates(DirectTable(path), rows, keys=["k"])]

    assert merged(0, "replace", low, high) == []
    assert merged(1, "patch", middle) == [middle]
    assert merged(2, "patch", low, middle, high) == [middle]
    assert by_text(rows_of(path)) == by_text([{"k": key, "n": 2} for key in (low, high)])


def test_a_table_for_appends_only_is_named_and_written_once_it_is_not(tmp_path):
    path = str(tmp_path / "t")
    rows = pyarrow.table({"id": [1], "a": ["x"]})
    write_deltalake(path, rows, configuration={"delta.appendOnly": "true"})

    def write(_topic):
        table = DirectTable(path)
        source = table.rows([{"id": 1, "a": "y"}], ["id", "a"])
        table.merge(source, **MERGED, commit=Commit("query-1", "mirror", 1, 1_000))

    with pytest.raises(ConfigError, match=r"appends only.*topic='p\.t'.*delta\.appendOnly"):
        for_each_table(None, ["p.t"], write)
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
    for_each_table(None, ["p.t"], write)
    assert rows_of(path) == [{"id": 1, "a": "y"}]


def test_a_constraint_is_named_without_the_rows_values_and_other_errors_stay():
    check = (
        "Job aborted: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint few (n < 10) "
        "violated by row with values:\n - n : 99 SQLSTATE: 23001"
    )
    few = r"constraint='few \(n < 10\)'"
    with pytest.raises(ConfigError, match=few) as raised, named_refusals("p.t"):
        raise RuntimeError(check)
    assert "99" not in str(raised.value)
    for error in (RuntimeError("append"), ConfigError("table is append-only"), KeyError("x")):
        with pytest.raises(type(error)) as raised, named_refusals("p.t"):
            raise error
        assert raised.value is error
