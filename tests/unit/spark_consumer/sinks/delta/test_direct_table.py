"""Tables written by delta-rs: one commit for each release, also beside another writer."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import parquet

from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.history import parse_commit

FIRST, SECOND = (Commit("query-1", "changelog", n, 1_000 * n) for n in range(2))
MERGED = {
    "same_row": '(t."id" = s.id)',
    "is_deleted": "false",
    "updated": {'"a"': "s.a"},
    "is_inserted": "true",
    "inserted": {'"id"': "s.id", '"a"': "s.a"},
}


@pytest.fixture
def path(tmp_path):
    columns = pyarrow.schema([("id", pyarrow.int64()), ("a", pyarrow.string())])
    write_deltalake(tmp_path / "a lake é+" / "t", columns.empty_table())
    return str(tmp_path / "a lake é+" / "t")


def rows_of(path):
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def append(table, number, commit):
    table.append(table.rows([{"id": number, "a": "x"}], ["id", "a"]), commit=commit)


def test_a_commit_says_what_spark_would_say(path):
    append(DirectTable(path), 1, FIRST)
    (file,) = Path(path, "_delta_log").glob("*1.json")
    commit = parse_commit(1, file.read_bytes())
    assert (commit.operation, commit.user_metadata) == ("WRITE", FIRST.metadata)
    actions = [json.loads(line) for line in file.read_text().splitlines() if line]
    (txn,) = [action["txn"] for action in actions if "txn" in action]
    assert txn == {"appId": FIRST.application, "version": 0}


def test_a_release_that_the_version_has_is_not_written_again(path):
    for commit in (FIRST, SECOND, FIRST, SECOND):
        append(DirectTable(path), commit.release, commit)
    table = DirectTable(path)
    assert table.has(FIRST)
    assert not table.has(Commit("query-2", "changelog", 0, 0))
    assert sorted(row["id"] for row in rows_of(path)) == [0, 1]


@pytest.mark.parametrize("writes", ["append", "merge"])
def test_of_two_writers_at_once_one_ends_with_a_conflict(path, writes):
    former, younger = DirectTable(path), DirectTable(path)
    append(younger, 1, FIRST)
    rows = former.rows([{"id": 1}], ["id", "a"])
    more = MERGED if writes == "merge" else {}
    with pytest.raises(DeltaError, match="oncurrent"):
        getattr(former, writes)(rows, **more, commit=FIRST)
    assert [row["id"] for row in rows_of(path)] == [1]


def test_a_merge_that_changes_nothing_makes_no_commit(path):
    table = DirectTable(path)
    nothing = MERGED | {"is_inserted": "false"}
    table.merge(table.rows([{"id": 1}], ["id", "a"]), **nothing, commit=FIRST)
    assert DeltaTable(path).version() == 0


def test_rows_take_the_tables_types_and_numbers_for_times(tmp_path):
    at = pyarrow.timestamp("us", "UTC")
    columns = pyarrow.schema([("r", pyarrow.struct([("at", at), ("later", pyarrow.int64())]))])
    write_deltalake(tmp_path / "t", columns.empty_table())
    table = DirectTable(str(tmp_path / "t"))
    found = table.rows([{"r": {"at": -1}}], ["r"]).to_pylist()
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert found == [{"r": {"at": moment, "later": None}}]


def test_nulls_are_found_too_and_a_version_stays_as_it_was(path):
    table = DirectTable(path)
    table.append(
        table.rows([{"id": None, "a": "n"}, {"id": 1}, {"id": 2}], ["id", "a"]), commit=FIRST
    )
    append(DirectTable(path), 7, SECOND)
    before = DirectTable(path, version=1)
    found = before.found("id", before.values("id", [None, 2, 7]), ["id"]).to_pylist()
    assert sorted(found, key=str) == [{"id": 2}, {"id": None}]
    assert [size for _, size in before.files()] == [
        Path(unquote(file)).stat().st_size for file, _ in before.files()
    ]
    assert [size > 0 for _, size in before.files()] == [True]


def test_a_table_with_a_feature_is_not_plain(tmp_path, path):
    assert DirectTable(path).is_plain
    rows = pyarrow.table({"id": [1]})
    featured = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(tmp_path / "featured", rows, configuration=featured)
    assert not DirectTable(str(tmp_path / "featured")).is_plain


@pytest.mark.parametrize("is_long", [True, False])
def test_timestamps_of_96_bits_are_seen(tmp_path, path, is_long):
    rows = pyarrow.table({"at": pyarrow.array([0], pyarrow.timestamp("us"))})
    parquet.write_table(rows, tmp_path / "f", use_deprecated_int96_timestamps=is_long)
    assert DirectTable(path).has_long_timestamps(str(tmp_path / "f")) is is_long


def test_a_partition_has_files_and_rows_of_its_own(tmp_path):
    columns = pyarrow.schema([("id", pyarrow.int64()), ("is_new", pyarrow.bool_())])
    path = str(tmp_path / "t")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("is_new", "boolean"))
    ]
    DirectTable.create(
        path,
        schema=json.dumps({"type": "struct", "fields": fields}),
        properties={},
        metadata="{}",
        partitioned_by=["is_new"],
    )
    assert DirectTable(path).files({"is_new": True}) == []
    rows = [{"id": n, "is_new": n > 0} for n in range(3)]
    write_deltalake(path, pyarrow.Table.from_pylist(rows, schema=columns), mode="append")
    table = DirectTable(path)
    every, new = table.files(), table.files({"is_new": True})
    assert (len(every), len(new)) == (2, 1)
    assert "is_new=true" in new[0][0]
    wanted = table.values("id", [0, 1])
    assert table.found("id", wanted, ["id"], part={"is_new": True}).to_pylist() == [{"id": 1}]


def test_a_value_whose_flag_is_not_set_comes_from_its_place_in_another_column(path):
    table = DirectTable(path)
    others = pyarrow.chunked_array([["p"], ["q"]], pyarrow.large_string())
    values = table.values("a", ["x", None, None, None])
    found = table.either([True, True, False, False], values, others, [0, 0, 1, None])
    assert found.to_pylist() == ["x", None, "q", None]
    assert found.type == values.type


MOMENT = datetime(2026, 5, 1, 12, 0, 0, 999_999, UTC)
# Of each type a column may have as a key: three values in ascending order.
VALUES = {
    "string": (pyarrow.string(), ["", "b", "c" * 100]),
    "binary": (pyarrow.binary(), [b"", b"b", b"\xff" * 100]),
    "long": (pyarrow.int64(), [-(2**63), 2**53 + 1, 2**63 - 1]),
    "boolean": (pyarrow.bool_(), [False, True, None]),
    "date": (pyarrow.date32(), [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
    "timestamp": (
        pyarrow.timestamp("us", "UTC"),
        [datetime(1, 1, 1, 0, 0, 0, 1, UTC), MOMENT, datetime.max.replace(tzinfo=UTC)],
    ),
    "decimal(38,9)": (
        pyarrow.decimal128(38, 9),
        [
            Decimal("-99999999999999999999999999999.999999999"),
            Decimal("0.000000001"),
            Decimal("12345678901234567890123456789.123456789"),
        ],
    ),
}


@pytest.fixture(params=VALUES)
def keyed(request, tmp_path):
    """A table with a key of each type, the name of the type, and the key's values."""
    kind, values = VALUES[request.param]
    fields = [
        {"name": name, "type": one, "nullable": True, "metadata": {}}
        for name, one in (("k", request.param), ("n", "long"))
    ]
    path = str(tmp_path / "t")
    schema = json.dumps({"type": "struct", "fields": fields})
    DirectTable.create(path, schema=schema, properties={}, metadata="{}")
    assert DirectTable(path).schema.field("k").type == kind
    return path, values


ROW = {
    "same_row": '(t."k" = s.k)',
    "is_deleted": "false",
    "updated": {"n": "s.n"},
    "is_inserted": "true",
    "inserted": {"k": "s.k", "n": "s.n"},
}


@pytest.mark.parametrize("is_merged", [True, False])
def test_rows_are_found_by_keys_of_any_type_in_files_of_either_command(keyed, is_merged):
    """One file of the outer values and one of that in between, so that bounds tell them apart."""
    path, values = keyed
    low, middle, high = values
    for number, part in enumerate(([low, high], [middle])):
        table = DirectTable(path)
        rows = table.rows([{"k": key, "n": values.index(key)} for key in part], ["k", "n"])
        commit = Commit("query-1", "mirror", number, 1)
        if is_merged:
            table.merge(rows, **ROW, commit=commit)
        else:
            table.append(rows, commit=commit)
    table = DirectTable(path)
    for wanted in ([low], [middle], [high], [low, middle, high], []):
        found = table.found("k", table.values("k", wanted), ["n"])
        assert sorted(found["n"].to_pylist()) == sorted(map(values.index, wanted))
        assert found.schema == pyarrow.schema([table.schema.field("n")])


def test_nothing_between_two_keys_is_found(keyed):
    path, (low, middle, high) = keyed
    table = DirectTable(path)
    table.merge(table.rows([{"k": low}, {"k": high}], ["k", "n"]), **ROW, commit=FIRST)
    table = DirectTable(path)
    assert table.found("k", table.values("k", [middle]), ["k"]).num_rows == 0


@pytest.mark.parametrize("is_merged", [True, False])
def test_the_log_has_bounds_only_where_they_are_true_for_every_reader(tmp_path, is_merged):
    names = ("n", "f", "id", "text", "at")
    kinds = ("decimal(38,9)", "double", "long", "string", "timestamp")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in zip(names, kinds, strict=True)
    ]
    record = {"type": "struct", "fields": fields}
    inner = [{"name": "r", "type": record, "nullable": True, "metadata": {}}]
    path = str(tmp_path / "t")
    schema = json.dumps({"type": "struct", "fields": fields + inner})
    DirectTable.create(path, schema=schema, properties={}, metadata="{}")
    table = DirectTable(path)
    long = "\U0010ffff" * 100
    row = {"n": Decimal("1e28"), "f": float("nan"), "id": 1, "text": long, "at": MOMENT}
    rows = table.rows([{**row, "r": row}, {**row, "r": row}], [*names, "r"])
    if is_merged:
        inserted = {name: f"s.{name}" for name in [*names, "r"]}
        more = {"same_row": "(t.id = s.id)", "updated": {"f": "s.f"}, "inserted": inserted}
        table.merge(rows, **{**ROW, **more}, commit=FIRST)
    else:
        table.append(rows, commit=FIRST)
    (log,) = Path(path, "_delta_log").glob("*1.json")
    (add,) = [one["add"] for one in map(json.loads, log.read_text().splitlines()) if "add" in one]
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 2
    bounds = [(name, stats["minValues"][name], stats["maxValues"][name]) for name in
              sorted(stats["minValues"].keys() | stats["maxValues"].keys())]  # fmt: skip
    times = ["2026-05-01T12:00:00.999Z"] * 2
    assert bounds == [("at", *times), ("id", 1, 1), ("text", "\U0010ffff" * 16, long)]
    (file,) = DirectTable(path).files()
    columns = parquet.read_metadata(file[0]).row_group(0)
    found = [columns.column(n) for n in range(columns.num_columns)]
    assert {one.path_in_schema for one in found if one.is_stats_set} == {"id", "text", "at"}
    assert {one.compression for one in found} == {"SNAPPY"}
