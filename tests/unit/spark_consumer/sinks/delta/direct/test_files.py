"""Files of tables: rewritten in one commit, their bounds, and the names of their partitions."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, unquote

import pyarrow
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import parquet
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from tests.unit.spark_consumer.sinks.delta_building import (
    FIRST_MOMENT,
    LAST_MOMENT,
    UTC_US,
    rows_of,
)
from tests.unit.spark_consumer.sinks.memory_files import MemoryFiles
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.spark_consumer.core.compaction import CompactionLimits, DataFile
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.delta import maintenance as module
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.delta.direct.files import (
    DirectFiles,
    OtherColumns,
    aligned,
    plain_schema,
    statistics,
)
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable, paths_without
from tidegate.spark_consumer.sinks.delta.layout import (
    is_other_path,
    refuse_lost_values,
    text_columns,
    unequal_columns,
)
from tidegate.spark_consumer.sinks.delta.log_files import parse_commit
from tidegate.spark_consumer.sinks.delta.maintenance import (
    TableMaintenance,
    VacuumPolicy,
    find_maintenance,
)
from tidegate.spark_consumer.sinks.manifest import KeptVersions, VacuumedVersions, kept_versions
from tidegate.spark_consumer.sinks.tables import Commit

ORDER = ("release", "ordinal")
LONG, TEXT = pyarrow.int64(), pyarrow.string()
COLUMNS = pyarrow.schema([("release", LONG), ("ordinal", LONG), ("a", TEXT)])
NOW_MS = 1_800_000_000_000
WHOLE = [(release, ordinal) for release in range(5) for ordinal in range(2)]


# ---------------------------------------------------------------- rewritten files
@pytest.fixture
def path(tmp_path):
    """A changelog of five releases with two rows each, and with Delta's bounds of the changelog."""
    path = str(tmp_path / "a lake é+" / "t")
    bounded = {"delta.dataSkippingStatsColumns": "release,ordinal"}
    write_deltalake(path, COLUMNS.empty_table(), configuration=bounded)
    for release in range(5):
        append(path, release)
    return path


def commit_of(release):
    return Commit("query-1", "changelog", release, 1_000 * release)


def append(path, release, rows=2):
    table = DirectTable(path)
    changes = [{"release": release, "ordinal": n, "a": f"{release}.{n}"} for n in range(rows)]
    table.append(table.rows(changes, COLUMNS.names), commit=commit_of(release))


def placed(table, order=ORDER):
    return sorted(table.data_files(order), key=lambda file: file.place)


def rewritten(table, files, *, order=ORDER, now_ms=NOW_MS, before_commit=lambda: None):
    return table.rewrite(files, order=order, now_ms=now_ms, before_commit=before_commit)


def rewrite(path, *, first=0, end=None, order=ORDER, **options):
    table = DirectFiles(path)
    return rewritten(table, placed(table, order)[first:end], order=order, **options)


def in_file_order(path):
    """The rows as a reader of the files finds them, file by file in the order of their places."""
    files = placed(DirectFiles(path))
    return [row for file in files for row in parquet.read_table(f"{path}/{file.path}").to_pylist()]


def places(path):
    return [(row["release"], row["ordinal"]) for row in in_file_order(path)]


def test_files_are_placed_by_release_and_ordinal(path, tmp_path):
    files = placed(DirectFiles(path))
    assert [file.place for file in files] == [(n, n, 0) for n in range(5)]
    assert {file.rows for file in files} == {2}
    for file in files:
        stat = Path(path, file.path).stat()
        assert file.size == stat.st_size
        assert abs(file.modified_ms - stat.st_mtime * 1_000) < 60_000
    by_age = DirectFiles(path).data_files(())
    assert {file.place for file in by_age} == {(file.modified_ms, file.path) for file in files}
    write_deltalake(tmp_path / "empty", COLUMNS.empty_table())
    assert DirectFiles(str(tmp_path / "empty")).data_files(ORDER) == []
    # A file without bounds is left alone.
    rows = pyarrow.table({"release": [1], "ordinal": [0], "a": ["x"]})
    unbounded = {"delta.dataSkippingStatsColumns": "a"}
    write_deltalake(tmp_path / "unbounded", rows, configuration=unbounded)
    table = DirectFiles(str(tmp_path / "unbounded"))
    assert [table.data_files(order)[0].rows for order in (ORDER, ())] == [None, 1]


def test_rows_stay_the_same_in_the_same_order(path):
    before, files = in_file_order(path), placed(DirectFiles(path))
    assert rewrite(path, first=1, end=4) == 6
    assert in_file_order(path) == before
    modified_ms = {file.place: file.modified_ms for file in DirectFiles(path).data_files(ORDER)}
    assert sorted(modified_ms) == [(0, 0, 0), (1, 3, 0), (4, 4, 0)]
    # Spark reads the files of a table's first version by age: their place in it stays.
    assert modified_ms[1, 3, 0] == max(file.modified_ms for file in files[1:4])
    # A release is known afterwards, and the next one is appended.
    assert DirectTable(path).has(commit_of(4))
    append(path, 4)
    append(path, 5)
    assert places(path) == [*WHOLE, (5, 0), (5, 1)]


def test_rows_that_another_program_has_mixed_are_sorted(path):
    whole = DeltaTable(path).to_pyarrow_table().sort_by([("ordinal", "descending")])
    for half in (whole.slice(0, 5), whole.slice(5)):
        write_deltalake(path, half, mode="append")
    table = DirectFiles(path)
    rewritten(table, table.data_files(ORDER))
    assert places(path) == sorted([*WHOLE, *WHOLE])


class History:
    """The commits of a table, from the files of its log."""

    def __init__(self, path):
        self._path = Path(path, "_delta_log")

    def recent(self, limit):
        files = sorted(self._path.glob("*.json"))[-(limit or 10_000) :]
        return [parse_commit(int(file.stem), file.read_bytes()) for file in files]

    def commit(self, version):
        file = self._path / f"{version:020d}.json"
        return parse_commit(version, file.read_bytes()) if file.exists() else None


def test_its_commit_changes_no_row_and_is_nobodys_release(path):
    rewrite(path)
    (file,) = Path(path, "_delta_log").glob("*6.json")
    actions = [json.loads(line) for line in file.read_text().splitlines() if line]
    removed = [action["remove"] for action in actions if "remove" in action]
    changed = [
        action["dataChange"] for action in (*removed, *(a["add"] for a in actions if "add" in a))
    ]
    assert changed == [False] * 6
    assert not [action for action in actions if "txn" in action]
    assert [action["deletionTimestamp"] for action in removed] == [NOW_MS] * 5
    assert parse_commit(6, file.read_bytes()).is_harmless
    log = CommitLog(History(path), path, query_id="query-1", sink="changelog")
    log.load()
    assert (log.head, log.foreign, log.version_at(4)) == (6, [], 5)
    assert [commit.release for commit in log.commits] == [0, 1, 2, 3, 4]


def test_the_log_keeps_the_bounds_so_that_readers_skip_the_file(path):
    rewrite(path, end=3)
    table = DirectTable(path)
    for above, through, files in ((-1, 0, 1), (1, 2, 1), (2, 3, 1), (0, 4, 3)):
        assert len(table.files_of("release", above=above, through=through)) == files


def test_a_reader_finds_each_text_by_the_bounds_of_a_rewritten_file(tmp_path):
    # Of each plane of Unicode, at both ends of what 16 bits hold, and what JSON escapes.
    texts = [f"{chr(0x10000 * plane + place)}x" for plane in range(17) for place in (0xBB7, 0xFFFD)]
    for text in [*texts, "\ud7ff", "\U0010ffff", "\x00", '"\\', "\x7f\x85\u2028"]:
        path = str(tmp_path / f"t{ord(text[0]):x}")
        for value in (text, text):
            write_deltalake(path, pyarrow.table({"a": [value]}), mode="append")
        rewrite(path, order=())
        query = QueryBuilder().register("t", DeltaTable(path))
        table = pyarrow.table(query.execute(f"SELECT a FROM t WHERE a = '{text}'"))
        assert table.to_pylist() == [{"a": text}] * 2


def test_a_kill_before_the_commit_changes_nothing_and_a_repeat_does_it(path):
    def killed():
        raise KeyboardInterrupt

    before = sorted(DeltaTable(path).file_uris())
    with pytest.raises(KeyboardInterrupt):
        rewrite(path, before_commit=killed)
    assert (DeltaTable(path).version(), sorted(DeltaTable(path).file_uris())) == (5, before)
    assert len(list(Path(path).glob("*.parquet"))) == 6
    rewrite(path)
    assert places(path) == WHOLE


MERGED = {
    "same_row": "(t.release = s.release AND t.ordinal = s.ordinal)",
    "is_deleted": "false",
    "updated": {'"a"': "s.a"},
    "is_inserted": "true",
    "inserted": {f'"{name}"': f"s.{name}" for name in COLUMNS.names},
}


def test_of_two_that_rewrite_a_file_the_later_one_ends_with_a_conflict(path):
    """Both would add its rows; a replaced run rewrites while its successor merges or rewrites."""
    late = DirectFiles(path)
    files = late.data_files(ORDER)
    merging = DirectTable(path)
    rows = merging.rows([{"release": 0, "ordinal": 0, "a": "new"}], COLUMNS.names)
    rewrite(path, end=3)
    with pytest.raises(DeltaError):
        rewritten(late, files[2:])
    with pytest.raises(DeltaError):
        merging.merge(rows, **MERGED, commit=commit_of(9))
    assert places(path) == WHOLE


def test_a_release_that_came_in_between_ends_it_with_a_conflict(path):
    late = DirectFiles(path)
    files = late.data_files(ORDER)
    append(path, 5)
    with pytest.raises(DeltaError):
        rewritten(late, files)
    assert places(path) == [*WHOLE, (5, 0), (5, 1)]
    # An append that began before goes on top.
    appending = DirectTable(path)
    rows = appending.rows([{"release": 6, "ordinal": 0, "a": "x"}], COLUMNS.names)
    rewrite(path)
    appending.append(rows, commit=commit_of(6))
    assert places(path) == [*WHOLE, (5, 0), (5, 1), (6, 0)]


def test_a_file_that_lost_rows_is_not_replaced(path):
    file = placed(DirectFiles(path))[2]
    rows = parquet.read_table(f"{path}/{file.path}")
    parquet.write_table(rows.slice(1), f"{path}/{file.path}")
    with pytest.raises(InvariantViolation, match="other rows"):
        rewrite(path)
    assert DeltaTable(path).version() == 5
    lost, other = DataFile("a", 1, 1, (0,), 0, (("p", "1"),)), DataFile("b", 1, 1, (1,), 0)
    with pytest.raises(InvariantViolation, match="partitions"):
        rewritten(DirectFiles(path), [lost, other], order=())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.bool_(), [True, None]),
        (TEXT, ["north-1", None]),
        (LONG, [-3, None]),
        (pyarrow.date32(), [date(2026, 1, 31), None]),
    ],
)
def test_a_partition_stays_one(tmp_path, kind, values):
    path = str(tmp_path / "t")
    columns = pyarrow.schema([("id", LONG), ("p", kind)])
    write_deltalake(path, columns.empty_table(), partition_by=["p"])
    for n in range(6):
        row = {"id": n, "p": values[n % 2]}
        write_deltalake(path, pyarrow.Table.from_pylist([row], schema=columns), mode="append")
    for value in {file.partition for file in DirectFiles(path).data_files(())}:
        table = DirectFiles(path)
        files = [file for file in placed(table, ()) if file.partition == value]
        assert len(files) == 3
        rewritten(table, files, order=())
    table_after = DeltaTable(path)
    assert len(table_after.file_uris()) == 2
    rows = table_after.to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [{"id": n, "p": values[n % 2]} for n in range(6)]
    assert len(table_after.to_pyarrow_table(filters=[("p", "=", values[0])])) == 3


def test_a_partition_whose_folder_or_text_has_several_forms_is_left_alone(tmp_path):
    """A file that is removed under another path than the log has stays, and its rows are twice."""
    for n, value in enumerate((1.5, "a b", "ü", "50%", "a/b", "a:b")):
        path = str(tmp_path / f"t{n}")
        write_deltalake(path, pyarrow.table({"id": [1], "p": [value]}), partition_by=["p"])
        assert [file.rows for file in DirectFiles(path).data_files(())] == [None]


def test_every_type_stays_as_it_was_and_later_columns_are_null(tmp_path):
    path = str(tmp_path / "t")
    inner = [
        ("n", pyarrow.decimal128(38, 9)), ("raw", pyarrow.binary()), ("l", pyarrow.list_(UTC_US)),
    ]  # fmt: skip
    columns = [
        ("at", UTC_US),
        ("d", pyarrow.date32()),
        ("f32", pyarrow.float32()),
        ("texts", pyarrow.list_(TEXT)),
        ("r", pyarrow.struct(inner)),
    ]
    names = [name for name, _ in columns]
    record = {"n": Decimal("-0.000000001"), "raw": b"\x00", "l": [LAST_MOMENT, None]}
    values = (FIRST_MOMENT, date(1582, 10, 10), 1.5, ["", None], record)
    rows = [dict(zip(names, values, strict=True)), dict.fromkeys(names) | {"at": LAST_MOMENT}]
    write_deltalake(path, pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns)))
    wider = [*columns[:-1], ("r", pyarrow.struct([*inner, ("x", LONG)])), ("y", LONG)]
    record = {"n": None, "raw": None, "l": [], "x": 1}
    later = dict.fromkeys(names) | {"at": FIRST_MOMENT, "texts": [], "r": record, "y": 2}
    later_rows = pyarrow.Table.from_pylist([later], schema=pyarrow.schema(wider))
    write_deltalake(path, later_rows, mode="append", schema_mode="merge")
    before = rows_of(path)
    rewrite(path, order=())
    assert len(DeltaTable(path).file_uris()) == 1
    assert sorted(rows_of(path), key=repr) == sorted(before, key=repr)


def test_timestamps_of_96_bits_become_microseconds(tmp_path):
    path = str(tmp_path / "t")
    at = datetime(1, 1, 1, 0, 0, 0, 5, UTC)
    rows = pyarrow.table({"at": pyarrow.array([at], UTC_US)})
    for _ in range(2):
        write_deltalake(path, rows, mode="append")
    naive = rows.cast(pyarrow.schema([("at", pyarrow.timestamp("us"))]))
    for file in DeltaTable(path).file_uris():
        parquet.write_table(naive, file, use_deprecated_int96_timestamps=True)
    rewrite(path, order=())
    assert not DirectTable(path).has_long_timestamps(DeltaTable(path).file_uris()[0])
    assert rows_of(path) == [{"at": at}] * 2


def test_the_log_has_checkpoints_so_that_readers_do_not_read_every_commit(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, COLUMNS.empty_table(), configuration={"delta.checkpointInterval": "10"})
    for release in range(24):
        append(path, release, rows=1)
        if release == 11:
            rewrite(path)
    last = json.loads(Path(path, "_delta_log", "_last_checkpoint").read_text())
    assert DeltaTable(path).version() - 10 < last["version"]
    (file,) = Path(path, "_delta_log").glob(f"*{last['version']}.checkpoint.parquet")
    assert parquet.read_metadata(file).num_rows < 40


def test_vacuum_deletes_what_no_version_of_its_hours_needs(path):
    assert DirectFiles(path).load_version_at(datetime.now(UTC)) == 5
    assert DirectFiles(path).load_version_at(datetime(2020, 1, 1, tzinfo=UTC)) == 0
    rewrite(path, end=3)
    Path(path, "part-of-a-killed-run.parquet").write_bytes(b"x")
    assert DirectFiles(path).vacuum(retention_hours=24) == 0
    assert len(list(Path(path).glob("*.parquet"))) == 7
    old = datetime.now(UTC) - timedelta(hours=30)
    rewrite(path, now_ms=round(old.timestamp() * 1_000))
    assert DirectFiles(path).vacuum(retention_hours=24) >= 3
    assert places(path) == WHOLE


def test_few_commits_are_read_to_find_the_first_version_with_the_same_rows(path, monkeypatch):
    """A table's log may have as many commits as the stream had releases in a month."""
    sizes = []
    history = DeltaTable.history

    def read(self, limit=None):
        commits = history(self, limit)
        sizes.append(len(commits))
        return commits

    monkeypatch.setattr(DeltaTable, "history", read)
    for release in range(5, 40):
        append(path, release)
    assert DirectFiles(path).same_since() == 40
    for first in range(9):
        rewrite(path, first=first, end=first + 2)
    table = DirectFiles(path)
    assert table.load_version_at(datetime.now(UTC)) == 49
    assert table.same_since() == 40
    assert max(sizes) < 20
    for first in range(9, 20):
        rewrite(path, first=first, end=first + 2)
    assert DirectFiles(path).same_since() == 40


# ---------------------------------------------------------------- rows of several files
def test_types_become_those_of_parquet_and_partitions_are_left_out():
    row = pyarrow.struct([("t", TEXT), ("l", pyarrow.large_list(UTC_US))])
    views = [("view", pyarrow.binary_view()), ("text", pyarrow.string_view())]
    fields = [("raw", pyarrow.binary()), *views, ("part", pyarrow.bool_())]
    schema = pyarrow.schema([pyarrow.field("row", row, nullable=False), *fields])
    elements = pyarrow.list_(pyarrow.field("element", UTC_US))
    text, raw = pyarrow.large_string(), pyarrow.large_binary()
    plain = pyarrow.struct([("t", text), ("l", elements)])
    expected = [("row", plain), ("raw", raw), ("view", raw), ("text", text)]
    assert plain_schema(schema, without=["part"]) == pyarrow.schema(expected)


def test_more_than_two_gibibytes_of_text_are_rows_of_one_file():
    once = pyarrow.array(["x" * (64 << 20)])
    inner = pyarrow.StructArray.from_arrays([once], ["t"])
    # The same memory 33 times.
    columns = [pyarrow.chunked_array([chunk] * 33) for chunk in (once, inner)]
    rows = pyarrow.table([pyarrow.array(range(33), LONG), *columns], ["n", "t", "r"])
    schema = plain_schema(rows.schema)
    aligned_rows = aligned(rows, schema)
    assert aligned_rows.nbytes > 2 * 2 * (1 << 30)
    assert (aligned_rows.schema, aligned_rows.num_rows) == (schema, 33)


def test_a_column_that_came_later_is_null_also_within_a_row():
    inner = pyarrow.struct([("a", LONG)])
    old = pyarrow.table({"id": [1, 2, 3], "r": pyarrow.array([{"a": 1}, None, {"a": None}], inner)})
    wider = pyarrow.struct([("a", LONG), ("b", TEXT)])
    schema = pyarrow.schema([("id", LONG), ("r", wider), ("new", UTC_US)])
    aligned_rows = aligned(old, schema)
    assert aligned_rows.schema == schema
    records = [{"a": 1, "b": None}, None, {"a": None, "b": None}]
    assert aligned_rows.to_pylist() == [
        {"id": n, "r": record, "new": None} for n, record in enumerate(records, 1)
    ]
    rows = pyarrow.table({"r": pyarrow.array([{"a": n} for n in range(5)], inner)}).slice(2, 2)
    assert aligned(rows, rows.schema).to_pylist() == [{"r": {"a": 2}}, {"r": {"a": 3}}]
    for other in ({"id": [1], "other": [2]}, {"id": [1], "r": pyarrow.array([{"other": 1}])}):
        with pytest.raises(OtherColumns, match="other"):
            aligned(pyarrow.table(other), schema)


# ---------------------------------------------------------------- bounds
def test_bounds_hold_for_each_value_in_the_form_of_the_log():
    at = datetime(2026, 5, 1, 12, 0, 0, 999_001, UTC)
    rows = pyarrow.table(
        {
            "n": pyarrow.array([3, None, -1], LONG),
            "d": pyarrow.array([date(1, 1, 1), None, date(9999, 12, 31)]),
            "at": pyarrow.array([at, at + timedelta(microseconds=1), None], UTC_US),
            "text": ["a" * 40, "b", None],
            "long": ["a", "z" * 40, "b"],
            "f": [1.0, float("nan"), 2.0],
            "dec": [Decimal("1.5"), None, None],
            "none": pyarrow.nulls(3, LONG),
            "r": pyarrow.array([{"a": 1}] * 3),
        }
    )
    bounds = json.loads(statistics(rows, [*rows.column_names, "missing"]))
    low = {"n": -1, "d": "0001-01-01", "at": "2026-05-01T12:00:00.999Z", "text": "a" * 32}
    high = {"n": 3, "d": "9999-12-31", "at": "2026-05-01T12:00:01.000Z", "text": "b"}
    assert (bounds["numRecords"], bounds["minValues"], bounds["maxValues"]) == (3, low, high)
    assert bounds["nullCount"] == {"n": 1, "d": 1, "at": 1, "text": 1, "long": 0, "none": 3}
    # The last microsecond of all has no upper bound, and zones are UTC.
    rows = pyarrow.table({"at": pyarrow.array([LAST_MOMENT], UTC_US)})
    assert json.loads(statistics(rows, ["at"]))["maxValues"] == {}
    noon = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    rows = pyarrow.table({"at": pyarrow.array([noon], pyarrow.timestamp("us", "+02:00"))})
    assert json.loads(statistics(rows, ["at"]))["minValues"] == {"at": "2026-05-01T10:00:00.000Z"}


BOUNDS = [(0, 4), (5, 5), (6, None), (None, 9), (-(2**63), 2**63 - 1)]
DATES = [(date(1, 1, 1), date(1582, 10, 10))]
AT = datetime(2026, 5, 1, 12, 0, 0, 999_000, UTC)


@pytest.mark.parametrize(
    ("kind", "bounds", "wanted", "expected"),
    [
        (LONG, BOUNDS, [-1, 6], [0, 1]),
        (LONG, BOUNDS, [], [0, 1, 4]),
        # A bound is missing, or NULL is looked for, of which bounds say nothing.
        (LONG, BOUNDS, [5, None], []),
        (pyarrow.date32(), DATES, [date(1582, 10, 11)], [0]),
        (pyarrow.date32(), DATES, [date(1582, 10, 10)], []),
        # Cut to milliseconds, downwards or upwards.
        (UTC_US, [(AT, AT)], [AT + timedelta(microseconds=999)], []),
        (UTC_US, [(AT, AT)], [AT - timedelta(microseconds=999)], []),
        (UTC_US, [(AT, AT)], [AT + timedelta(milliseconds=2)], [0]),
        (UTC_US, [(LAST_MOMENT.replace(microsecond=999_000),) * 2], [LAST_MOMENT], []),
        # Types whose bounds writers round, cut, or compare in different ways.
        (pyarrow.decimal128(38, 9), [(Decimal(1), Decimal(1))], [Decimal(2)], []),
        (TEXT, [("a", "a")], ["b"], []),
        (pyarrow.bool_(), [(True, True)], [False], []),
        (pyarrow.float64(), [(1.0, 1.0)], [float("nan")], []),
    ],
)
def test_a_file_is_left_out_only_where_true_bounds_exclude_each_value(
    kind, bounds, wanted, expected
):
    columns = {
        "path": [str(n) for n in range(len(bounds))],
        "min.k": pyarrow.array([low for low, _ in bounds], kind),
        "max.k": pyarrow.array([high for _, high in bounds], kind),
    }
    left_out = paths_without(pyarrow.array(wanted, kind), pyarrow.table(columns), "k")
    assert sorted(map(int, left_out)) == expected


def test_bounds_are_those_that_the_log_names(tmp_path):
    for number in (1, 7):
        write_deltalake(tmp_path / "t", pyarrow.table({"k": [number]}), mode="append")
    actions = pyarrow.table(DeltaTable(tmp_path / "t").get_add_actions(flatten=True))
    (log,) = (tmp_path / "t" / "_delta_log").glob("*0.json")
    (add,) = [
        action["add"] for action in map(json.loads, log.read_text().splitlines()) if "add" in action
    ]
    assert paths_without(pyarrow.array([7]), actions, "k") == {add["path"]}
    # A column without bounds, or with those of another type, leaves out nothing.
    for other in ({}, {"min.k": ["6"], "max.k": ["6"]}):
        actions = pyarrow.table({"path": ["0"], **other})
        assert paths_without(pyarrow.array([5], LONG), actions, "k") == set()


# ---------------------------------------------------------------- partitions
def refuse(values, *, address="/lake/mirror/t"):
    refuse_lost_values("t", values, address=address)


def test_columns_are_chosen_by_their_types():
    kinds = {"id": LongType(), "region": StringType(), "day": DateType(), "at": TimestampType()}
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    assert unequal_columns(schema, ["region", "at", "day"]) == ["at"]
    assert text_columns(schema, ["id", "region", "dropped"]) == ["region"]


def test_a_text_that_would_be_null_or_is_too_long_for_a_folders_name_is_refused():
    refuse({"region": [None, "x", " ", "null"], "id": [0, None, b""]})
    for text in ("", "\x00", "a\x00", "__HIVE_DEFAULT_PARTITION__"):
        for address in ("/lake/mirror/t", "s3a://bucket/lake/t"):
            with pytest.raises(ConfigError, match=r"^mirror_partition_by: .*'region', rows=2"):
                refuse({"id": [1], "region": ["x", text, None, text]}, address=address)
    # With "region=" 255 bytes, as delta-rs encodes them; of a whole path others count.
    longest = ("x" * 248, "é" * 41 + "xx", " " * 82 + "xx", "_.-" * 82 + "xx", "*" * 82 + "xx")
    refuse({"region": longest})
    for text in longest:
        with pytest.raises(ConfigError, match=r"255 encoded.*column='region', rows=1"):
            refuse({"region": [None, f"{text}x"]})
    refuse({"r": ["x" * 253]})


def test_in_a_store_without_folders_the_whole_key_counts():
    address = "s3a://bucket/lake/mirror/t"
    key, file_name = "lake/mirror/t/region=/", "_change_data/cdc-00000-" + "0" * 36
    room = 1_024 - len(key) - 128
    assert room + len(key) + len(f"{file_name}.c000.snappy.parquet") <= 1_024
    too_long = r"1,024.*column='region', rows=1"
    for text in ("x" * room, "é" * (room // 6) + "x" * (room % 6)):
        for scheme in ("s3a", "s3", "gs"):
            refuse({"region": [text]}, address=address.replace("s3a", scheme))
        for elsewhere in ("/lake/t", "hdfs://host/lake/t", "abfss://bucket@account/t", "file:/t"):
            with pytest.raises(ConfigError, match=r"255 encoded.*column='region', rows=1"):
                refuse({"region": [text]}, address=elsewhere)
        for longer in (f"{address}é", address.replace("lake", "lakes")):
            with pytest.raises(ConfigError, match=too_long):
                refuse({"region": [text]}, address=longer)
        with pytest.raises(ConfigError, match=too_long):
            refuse({"region": ["x", f"{text}x"]}, address=address)
    # Two columns share the key: each fits, and together they do not.
    fits, does_not = "x" * (room // 2 - 20), "x" * (room // 2 + 1)
    city, day = [None, "b" * 400], [1, 2]
    refuse({"region": [fits, "a"], "city": [fits, *city[1:]], "day": day}, address=address)
    values = {"region": [does_not, "a", None], "city": [does_not, *city], "day": [None, *day]}
    with pytest.raises(ConfigError, match=r"1,024.*column='region, city, day', rows=1"):
        refuse(values, address=address)


def test_no_name_of_a_folder_is_longer_than_it_is_counted(tmp_path):
    texts = ["".join(map(chr, range(n, n + 20))) for n in range(1, 161, 20)]
    rows = pyarrow.table({"a-é~": texts, "n": [1] * len(texts)})
    write_deltalake(tmp_path, rows, partition_by=["a-é~"])
    folders = [entry.name for entry in tmp_path.iterdir() if entry.name != "_delta_log"]
    assert len(folders) == len(texts)
    room = {unquote(folder).partition("=")[2]: 255 - len(folder.encode()) for folder in folders}
    for text in texts:
        with pytest.raises(ConfigError):
            refuse({"a-é~": [text + "x" * (room[text] + 1)]})


def test_a_path_that_delta_rs_may_list_in_another_form_is_seen():
    for text in ("é", "日本", "\U0001f600", "a é"):
        # As Spark has it in the log, as delta-rs lists that, and as delta-rs writes it.
        forms = (text, quote(text), quote(quote(text)))
        differs = [is_other_path(f"region={form}/part-0.parquet") for form in forms]
        assert differs == [True, True, False]
    for text in ("a", "a b", "a/b", "100%", "~=:?#+&'\"", "\x7f", "__HIVE"):
        for form in (text, quote(text), quote(quote(text))):
            assert not is_other_path(f"region={form}/part-0.parquet")


# ---------------------------------------------------------------- the work between two batches

MIB = 1024**2
NEVER = VacuumPolicy(retention_hours=0, interval_ms=60_000)
DAILY = VacuumPolicy(retention_hours=24, interval_ms=3_600_000)


class Tables:
    """Stands for a sink: tables of an output, one file for each commit."""

    name = "changelog"

    def __init__(self, output):
        self.output, self.paths = output, []

    def add(self, path, files, **options):
        for n in range(files):
            rows = pyarrow.table({"release": [n], "ordinal": [0], "id": [n]})
            write_deltalake(self.at(path), rows, mode="append", **options)
        if path not in self.paths:
            self.paths.append(path)

    def at(self, path):
        return f"{self.output}/{path}"

    def files(self, *paths):
        return [len(DeltaTable(self.at(path)).file_uris()) for path in paths]

    def ids(self, path):
        return sorted(DeltaTable(self.at(path)).to_pyarrow_table()["id"].to_pylist())

    def heads(self):
        return {path: DeltaTable(self.at(path)).version() for path in self.paths}

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        return {}


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


def maintenance(tables, *, vacuum=NEVER, files_min=4, **changes):
    options = {
        "manifests": MemoryFiles(),
        "limits": CompactionLimits(files_min, MIB),
        "vacuum": vacuum,
        "require_writer": lambda: None,
    }
    return TableMaintenance(DirectPlace(str(tables.output)), [tables], **(options | changes))


def test_small_files_become_one_and_rows_stay(tables):
    featured = {"delta.enableChangeDataFeed": "true"}
    tables.add("changelog/a", 5)
    tables.add("mirror/b", 3)
    tables.add("changelog/featured", 5, configuration=featured)  # is left alone
    maintenance(tables, files_min=0)()
    assert tables.files("changelog/a") == [5]
    maintenance(tables)()
    assert tables.files("changelog/a", "mirror/b", "changelog/featured") == [1, 3, 5]
    assert tables.ids("changelog/a") == list(range(5))


def test_one_batch_does_a_bounded_part_and_the_next_ones_the_rest(tables, monkeypatch):
    monkeypatch.setattr(module, "_FILES_PER_BATCH", 6)
    tables.add("changelog/a", 15)
    tables.add("changelog/b", 10)
    maintain = maintenance(tables)
    maintain()
    assert tables.files("changelog/a", "changelog/b") == [10, 10]
    for _ in range(6):
        maintain()
    assert sum(tables.files("changelog/a", "changelog/b")) <= 8
    assert tables.ids("changelog/a") == list(range(15))


def test_a_changelog_is_in_order_and_a_mirror_has_none(tables, monkeypatch):
    orders = {}
    real = DirectFiles.data_files

    def noted(self, order):
        orders[Path(self._table.table_uri).parent.name] = order
        return real(self, order)

    monkeypatch.setattr(DirectFiles, "data_files", noted)
    folders = ("changelog", "incomplete", "history_incomplete", "mirror", "history")
    for folder in folders:
        tables.add(f"{folder}/a", 4)
    maintenance(tables)()
    in_order = ("release", "ordinal")
    assert orders == dict.fromkeys(folders[:3], in_order) | {"mirror": (), "history": ()}
    assert tables.files(*(f"{folder}/a" for folder in folders)) == [1] * 5


def test_a_replaced_run_changes_nothing_and_ends(tables):
    def replaced():
        raise WriterReplaced("replaced")

    tables.add("changelog/a", 5)
    files = MemoryFiles()
    for files_min in (4, 0):
        maintain = maintenance(
            tables, require_writer=replaced, vacuum=DAILY, files_min=files_min, manifests=files
        )
        with pytest.raises(WriterReplaced):
            maintain()
    assert tables.files("changelog/a") == [5]
    assert kept_versions(files) == {}


def test_what_fails_is_left_for_later_and_the_others_are_done(tables, capsys):
    tables.add("changelog/a", 6)
    tables.add("changelog/b", 5)
    Path(DeltaTable(tables.at("changelog/a")).file_uris()[0]).unlink()
    maintain = maintenance(tables)
    maintain()
    assert tables.files("changelog/b") == [1]
    printed = capsys.readouterr().out
    assert "table not maintained" in printed
    assert "changelog/a" in printed
    maintain()
    assert "table not maintained" not in capsys.readouterr().out


def test_vacuum_notes_what_it_keeps_before_it_deletes(tables, monkeypatch):
    tables.add("changelog/a", 3)
    manifests, noted = MemoryFiles(), []
    monkeypatch.setattr(
        DirectFiles, "vacuum", lambda self, **_: noted.append(kept_versions(manifests)) or 0
    )
    later = datetime.now(UTC) + timedelta(hours=48)
    options = {"vacuum": DAILY, "files_min": 0, "manifests": manifests}
    maintenance(tables, **options, now=lambda: later)()
    assert noted == [{"changelog/a": KeptVersions(2, 2)}]


def test_one_table_is_vacuumed_at_a_time_and_each_once_in_a_round(tables, monkeypatch):
    for name in "abc":
        tables.add(f"mirror/{name}", 1)
    deleted = []

    def vacuum(self, *, retention_hours):
        deleted.append((Path(self._table.table_uri).name, retention_hours))
        return 0

    monkeypatch.setattr(DirectFiles, "vacuum", vacuum)
    clock = SimpleNamespace(now=datetime.now(UTC))
    options = {"vacuum": DAILY, "manifests": MemoryFiles(), "files_min": 0}
    options["now"] = lambda: clock.now
    maintain = maintenance(tables, **options)
    for count in (1, 2, 3, 3, 3):
        maintain()
        assert len(deleted) == count
    assert deleted == [(name, 24) for name in "abc"]
    maintenance(tables, **options)()  # a restart begins no new round
    assert len(deleted) == 3
    clock.now += timedelta(hours=1)
    maintain()
    assert len(deleted) == 4


@pytest.mark.parametrize(
    ("limits", "sinks", "expected"),
    [((4, 0), 1, True), ((0, 24), 1, True), ((0, 0), 1, False), ((4, 24), 0, False)],
)
def test_there_is_none_where_nothing_is_to_do(tables, limits, sinks, expected, capsys):
    files_min, hours = limits

    def find(output):
        return find_maintenance(
            output,
            [tables, SimpleNamespace(name="function")][1 - sinks :],
            manifests=MemoryFiles(),
            limits=CompactionLimits(files_min, MIB),
            vacuum=VacuumPolicy(retention_hours=hours, interval_ms=60_000),
            require_writer=lambda: None,
        )

    assert (find(str(tables.output)) is not None) is expected
    # Where delta-rs does not reach the output a line names the cause.
    assert find("hdfs://host/out") is None
    assert ("tables are not compacted" in capsys.readouterr().out) is expected


def test_what_was_noted_before_a_deletion_is_found_by_the_next_run_and_by_readers():
    files, now = MemoryFiles(), datetime(2026, 5, 1, 12, 0, 0, 1, UTC)
    noted = VacuumedVersions(files)
    assert (noted.last_round(), kept_versions(files)) == (None, {})
    noted.note_round(now)
    noted.note_table("mirror/a", KeptVersions(7, 5))
    noted.note_table("mirror/b", KeptVersions(1, 1))
    assert VacuumedVersions(files).last_round() == now
    VacuumedVersions(files).note_round(now)
    # A version that has lost files never becomes whole again.
    VacuumedVersions(files).note_table("mirror/a", KeptVersions(3, 3))
    kept = KeptVersions(7, 5)
    assert kept_versions(files) == {"mirror/a": kept, "mirror/b": KeptVersions(1, 1)}
    # One whose files were only rewritten is read from the first whole one.
    assert [kept.readable(version) for version in (4, 5, 6, 7, 8)] == [None, 7, 7, 7, 8]
