"""Files rewritten in one commit: the same rows in the same order, once, whatever happens."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import parquet

from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.compaction import DataFile
from tidegate.spark_consumer.sinks.delta.commit_log import Commit, CommitLog
from tidegate.spark_consumer.sinks.delta.direct_files import DirectFiles
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.history import parse_commit

ORDER = ("release", "ordinal")
LONG, TEXT = pyarrow.int64(), pyarrow.string()
COLUMNS = pyarrow.schema([("release", LONG), ("ordinal", LONG), ("a", TEXT)])
NOW_MS = 1_800_000_000_000


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


def rewrite(path, *, first=0, end=None, before_commit=lambda: None, order=ORDER):
    table = DirectFiles(path)
    files = sorted(table.data_files(order), key=lambda one: one.place)
    return table.rewrite(files[first:end], order=order, now_ms=NOW_MS, before_commit=before_commit)


def in_file_order(path):
    """The rows as a reader of the files finds them, file by file in the order of their places."""
    table = DirectFiles(path)
    files = sorted(table.data_files(ORDER), key=lambda one: one.place)
    return [row for file in files for row in parquet.read_table(f"{path}/{file.path}").to_pylist()]


def places(path):
    return [(row["release"], row["ordinal"]) for row in in_file_order(path)]


WHOLE = [(release, ordinal) for release in range(5) for ordinal in range(2)]


def test_files_are_placed_by_release_and_ordinal(path):
    files = DirectFiles(path).data_files(ORDER)
    assert sorted(one.place for one in files) == [(n, n, 0) for n in range(5)]
    assert {one.rows for one in files} == {2}
    for one in files:
        stat = Path(path, one.path).stat()
        assert one.size == stat.st_size
        assert abs(one.modified_ms - stat.st_mtime * 1_000) < 60_000
    by_age = DirectFiles(path).data_files(())
    assert {one.place for one in by_age} == {(one.modified_ms, one.path) for one in files}


def test_an_empty_table_has_no_files(tmp_path):
    write_deltalake(tmp_path / "t", COLUMNS.empty_table())
    assert DirectFiles(str(tmp_path / "t")).data_files(ORDER) == []


def test_a_file_without_bounds_is_left_alone(tmp_path):
    path = str(tmp_path / "t")
    unbounded = {"delta.dataSkippingStatsColumns": "a"}
    rows = pyarrow.table({"release": [1], "ordinal": [0], "a": ["x"]})
    write_deltalake(path, rows, configuration=unbounded)
    (file,) = DirectFiles(path).data_files(ORDER)
    assert file.rows is None
    assert DirectFiles(path).data_files(())[0].rows == 1


def test_rows_stay_the_same_in_the_same_order(path):
    before = in_file_order(path)
    assert rewrite(path, first=1, end=4) == 6
    assert in_file_order(path) == before
    assert places(path) == WHOLE
    assert [
        one.place for one in sorted(DirectFiles(path).data_files(ORDER), key=lambda f: f.place)
    ] == [
        (0, 0, 0),
        (1, 3, 0),
        (4, 4, 0),
    ]


def test_rows_that_another_program_has_mixed_are_sorted(path):
    whole = DeltaTable(path).to_pyarrow_table().sort_by([("ordinal", "descending")])
    for half in (whole.slice(0, 5), whole.slice(5)):
        write_deltalake(path, half, mode="append")
    table = DirectFiles(path)
    rewritten = table.data_files(ORDER)
    table.rewrite(rewritten, order=ORDER, now_ms=NOW_MS, before_commit=lambda: None)
    assert places(path) == sorted([*WHOLE, *WHOLE])


def test_its_commit_changes_no_row_and_is_nobodys_release(path):
    rewrite(path)
    (file,) = Path(path, "_delta_log").glob("*6.json")
    actions = [json.loads(line) for line in file.read_text().splitlines() if line]
    changed = [
        one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one
    ]
    assert changed == [False] * 6
    assert not [one for one in actions if "txn" in one]
    assert [one["remove"]["deletionTimestamp"] for one in actions if "remove" in one] == [
        NOW_MS
    ] * 5
    commit = parse_commit(6, file.read_bytes())
    assert commit.is_harmless
    log = CommitLog(History(path), path, query_id="query-1", sink="changelog")
    log.load()
    assert log.head == 6
    assert log.foreign == []
    assert [one.release for one in log.commits] == [0, 1, 2, 3, 4]
    assert log.version_at(4) == 5


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


def test_a_release_is_known_afterwards_and_the_next_one_is_appended(path):
    rewrite(path)
    assert DirectTable(path).has(commit_of(4))
    append(path, 4)
    append(path, 5)
    assert places(path) == [*WHOLE, (5, 0), (5, 1)]


def test_the_log_keeps_the_bounds_so_that_readers_skip_the_file(path):
    rewrite(path, end=3)
    table = DirectTable(path)
    assert len(table.files_of("release", above=-1, through=0)) == 1
    assert len(table.files_of("release", above=1, through=2)) == 1
    assert len(table.files_of("release", above=2, through=3)) == 1
    assert len(table.files_of("release", above=0, through=4)) == 3


def test_a_reader_finds_each_text_by_the_bounds_of_a_rewritten_file(tmp_path):
    # Of each plane of Unicode, at both ends of what 16 bits hold, and what JSON escapes.
    texts = [f"{chr(0x10000 * plane + place)}x" for plane in range(17) for place in (0xBB7, 0xFFFD)]
    for text in [*texts, "\ud7ff", "\U0010ffff", "\x00", '"\\', "\x7f\x85\u2028"]:
        path = str(tmp_path / f"t{ord(text[0]):x}")
        for one in (text, text):
            write_deltalake(path, pyarrow.table({"a": [one]}), mode="append")
        rewrite(path, order=())
        query = QueryBuilder().register("t", DeltaTable(path))
        found = pyarrow.table(query.execute(f"SELECT a FROM t WHERE a = '{text}'"))
        assert found.to_pylist() == [{"a": text}] * 2


def test_the_place_in_a_streams_first_batch_stays(path):
    """Spark reads the files of a table's first version by age."""
    files = sorted(DirectFiles(path).data_files(ORDER), key=lambda one: one.place)
    rewrite(path, first=1, end=3)
    times = {one.place: one.modified_ms for one in DirectFiles(path).data_files(ORDER)}
    assert times[(1, 2, 0)] == max(one.modified_ms for one in files[1:3])


def test_a_kill_before_the_commit_changes_nothing_and_a_repeat_does_it(path):
    def killed():
        raise KeyboardInterrupt

    before = sorted(DeltaTable(path).file_uris())
    with pytest.raises(KeyboardInterrupt):
        rewrite(path, before_commit=killed)
    assert DeltaTable(path).version() == 5
    assert sorted(DeltaTable(path).file_uris()) == before
    assert len(list(Path(path).glob("*.parquet"))) == 6
    rewrite(path)
    assert places(path) == WHOLE


def test_of_two_that_rewrite_a_file_the_later_one_ends_with_a_conflict(path):
    """Both would add its rows."""
    late = DirectFiles(path)
    files = late.data_files(ORDER)
    rewrite(path, end=3)
    with pytest.raises(DeltaError):
        late.rewrite(files[2:], order=ORDER, now_ms=NOW_MS, before_commit=lambda: None)
    assert places(path) == WHOLE


def test_a_release_that_came_in_between_ends_it_with_a_conflict(path):
    late = DirectFiles(path)
    files = late.data_files(ORDER)
    append(path, 5)
    with pytest.raises(DeltaError):
        late.rewrite(files, order=ORDER, now_ms=NOW_MS, before_commit=lambda: None)
    assert places(path) == [*WHOLE, (5, 0), (5, 1)]


def test_a_merge_that_began_before_ends_with_a_conflict(path):
    """A replaced run rewrites files while its successor merges into them."""
    merging = DirectTable(path)
    rows = merging.rows([{"release": 0, "ordinal": 0, "a": "new"}], COLUMNS.names)
    rewrite(path)
    with pytest.raises(DeltaError):
        merging.merge(
            rows,
            same_row="(t.release = s.release AND t.ordinal = s.ordinal)",
            is_deleted="false",
            updated={'"a"': "s.a"},
            is_inserted="true",
            inserted={f'"{name}"': f"s.{name}" for name in COLUMNS.names},
            commit=commit_of(9),
        )
    assert places(path) == WHOLE


def test_an_append_that_began_before_goes_on_top(path):
    late = DirectTable(path)
    rows = late.rows([{"release": 5, "ordinal": 0, "a": "x"}], COLUMNS.names)
    rewrite(path)
    late.append(rows, commit=commit_of(5))
    assert places(path) == [*WHOLE, (5, 0)]


def test_a_file_that_lost_rows_is_not_replaced(path):
    file = sorted(DirectFiles(path).data_files(ORDER), key=lambda one: one.place)[2]
    rows = parquet.read_table(f"{path}/{file.path}")
    parquet.write_table(rows.slice(1), f"{path}/{file.path}")
    with pytest.raises(InvariantViolation, match="other rows"):
        rewrite(path)
    assert DeltaTable(path).version() == 5


def test_files_of_two_partitions_are_refused(path):
    one, other = DataFile("a", 1, 1, (0,), 0, (("p", "1"),)), DataFile("b", 1, 1, (1,), 0)
    with pytest.raises(InvariantViolation, match="partitions"):
        DirectFiles(path).rewrite([one, other], order=(), now_ms=NOW_MS, before_commit=lambda: None)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.bool_(), [True, None]),
        (pyarrow.string(), ["north-1", None]),
        (pyarrow.int64(), [-3, None]),
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
    for value in {one.partition for one in DirectFiles(path).data_files(())}:
        table = DirectFiles(path)
        files = sorted(
            (one for one in table.data_files(()) if one.partition == value),
            key=lambda one: one.place,
        )
        assert len(files) == 3
        table.rewrite(files, order=(), now_ms=NOW_MS, before_commit=lambda: None)
    found = DeltaTable(path)
    assert len(found.file_uris()) == 2
    rows = found.to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [{"id": n, "p": values[n % 2]} for n in range(6)]
    assert len(found.to_pyarrow_table(filters=[("p", "=", values[0])])) == 3


@pytest.mark.parametrize("value", [1.5, "a b", "ü", "50%", "a/b", "a:b"])
def test_a_partition_whose_folder_or_text_has_several_forms_is_left_alone(tmp_path, value):
    """A file that is removed under another path than the log has stays, and its rows are twice."""
    path = str(tmp_path / "t")
    rows = pyarrow.table({"id": [1], "p": [value]})
    write_deltalake(path, rows, partition_by=["p"])
    assert [one.rows for one in DirectFiles(path).data_files(())] == [None]


def test_every_type_stays_as_it_was_and_later_columns_are_null(tmp_path):
    path = str(tmp_path / "t")
    us = pyarrow.timestamp("us", "UTC")
    inner = [("n", pyarrow.decimal128(38, 9)), ("raw", pyarrow.binary()), ("l", pyarrow.list_(us))]
    columns = [
        ("at", us),
        ("d", pyarrow.date32()),
        ("f32", pyarrow.float32()),
        ("texts", pyarrow.list_(TEXT)),
        ("r", pyarrow.struct(inner)),
    ]
    first, last = (
        datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    )
    rows = [
        {
            "at": first,
            "d": date(1582, 10, 10),
            "f32": 1.5,
            "texts": ["", None],
            "r": {"n": Decimal("-0.000000001"), "raw": b"\x00", "l": [last, None]},
        },
        dict.fromkeys(name for name, _ in columns) | {"at": last},
    ]
    write_deltalake(path, pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns)))
    wider = pyarrow.schema(
        [*columns[:-1], ("r", pyarrow.struct([*inner, ("x", LONG)])), ("y", LONG)]
    )
    later = {
        "at": first,
        "d": None,
        "f32": None,
        "texts": [],
        "r": {"n": None, "raw": None, "l": [], "x": 1},
        "y": 2,
    }
    write_deltalake(
        path,
        pyarrow.Table.from_pylist([later], schema=wider),
        mode="append",
        schema_mode="merge",
    )
    before = DeltaTable(path).to_pyarrow_table().to_pylist()
    rewrite(path, order=())
    after = DeltaTable(path)
    assert len(after.file_uris()) == 1
    key = repr
    assert sorted(after.to_pyarrow_table().to_pylist(), key=key) == sorted(before, key=key)


def test_timestamps_of_96_bits_become_microseconds(tmp_path):
    path = str(tmp_path / "t")
    at = datetime(1, 1, 1, 0, 0, 0, 5, UTC)
    rows = pyarrow.table({"at": pyarrow.array([at], pyarrow.timestamp("us", "UTC"))})
    for _ in range(2):
        write_deltalake(path, rows, mode="append")
    for file in DeltaTable(path).file_uris():
        size = Path(file).stat().st_size
        naive = rows.cast(pyarrow.schema([("at", pyarrow.timestamp("us"))]))
        parquet.write_table(naive, file, use_deprecated_int96_timestamps=True)
        assert size
    rewrite(path, order=())
    assert not DirectTable(path).has_long_timestamps(DeltaTable(path).file_uris()[0])
    assert DeltaTable(path).to_pyarrow_table()["at"].to_pylist() == [at, at]


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
    rewrite(path, end=3)
    stray = Path(path, "part-of-a-killed-run.parquet")
    stray.write_bytes(b"x")
    table = DirectFiles(path)
    assert table.vacuum(retention_hours=24) == 0
    assert len(list(Path(path).glob("*.parquet"))) == 7
    old = datetime.now(UTC) - timedelta(hours=30)
    rewrite_at(path, round(old.timestamp() * 1_000))
    assert DirectFiles(path).vacuum(retention_hours=24) >= 3
    assert places(path) == WHOLE


def rewrite_at(path, now_ms):
    table = DirectFiles(path)
    table.rewrite(
        sorted(table.data_files(ORDER), key=lambda one: one.place),
        order=ORDER,
        now_ms=now_ms,
        before_commit=lambda: None,
    )


def test_the_version_of_a_time(path):
    assert DirectFiles(path).load_version_at(datetime.now(UTC)) == 5
    assert DirectFiles(path).load_version_at(datetime(2020, 1, 1, tzinfo=UTC)) == 0
    assert DirectFiles(path).version == 5
