"""How tables and manifests are read; whether they are right is tried in test_judge."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tidegate.local_stack.judge.delta import DeltaReader, read_delta, table_rows


def manifest(release: int) -> str:
    entry = {
        "changelog": {"path": "changelog/t", "version": None, "rows": 0},
        "mirror": {"path": "mirror/t", "version": 4},
    }
    content = {
        "release": release,
        "after_us": 1,
        "through_us": 2,
        "rows": 0,
        "tables": {"t": entry},
    }
    return json.dumps(content)


def test_an_empty_folder_has_nothing(tmp_path: Path):
    reader = DeltaReader(tmp_path)

    assert reader.manifests() == []
    assert reader.changelog_tables() == reader.mirror_tables() == []
    assert reader.late_rows() == 0


def test_manifests_come_by_number(tmp_path: Path):
    folder = tmp_path / "_releases"
    folder.mkdir()
    for name, release in (("b.json", 9), ("a.json", 10)):
        (folder / name).write_text(manifest(release))
    (folder / "c.json.tmp").write_text("not yet a manifest")
    first, second = DeltaReader(tmp_path).manifests()

    assert (first.number, second.number) == (9, 10)
    assert first.tables["t"].changelog_version is None
    assert first.tables["t"].mirror_version == 4


def test_files_with_arrows_view_types_are_read_with_others(tmp_path: Path):
    """delta-rs's MERGE writes them, and Spark does not."""
    row = {"Id": "a", "Tags": ["b"], "Picture": b"c", "More": {"Name": "d"}}
    folder = tmp_path / "t"
    for text, raw in ((pa.string(), pa.binary()), (pa.string_view(), pa.binary_view())):
        more = pa.struct({"Name": text})
        kinds = {"Id": text, "Tags": pa.list_(text), "Picture": raw, "More": more}
        before = set(folder.glob("*.parquet"))
        write_deltalake(str(folder), pa.Table.from_pylist([row]), mode="append")
        (file,) = set(folder.glob("*.parquet")) - before
        pq.write_table(pa.Table.from_pylist([row], schema=pa.schema(list(kinds.items()))), file)

    assert read_delta(folder).to_pylist() == [row, row]


def test_a_mirror_is_read_as_it_was_at_a_version(tmp_path: Path):
    for balance in (1, 2):
        rows = pa.Table.from_pylist([{"Id": "a", "Balance": balance}])
        write_deltalake(str(tmp_path / "mirror" / "t"), rows, mode="overwrite")
    (tmp_path / "mirror" / "no table").mkdir()
    reader = DeltaReader(tmp_path)

    assert reader.mirror_tables() == ["t"]
    assert reader.mirror("t", version=0)["Balance"] == (1,)
    assert reader.mirror("t")["Balance"] == (2,)


def test_a_table_without_rows_has_none(tmp_path: Path):
    write_deltalake(str(tmp_path / "mirror" / "t"), pa.table({"Id": pa.array([], pa.string())}))

    assert DeltaReader(tmp_path).mirror("t").get("Id", ()) == ()


def test_files_of_different_schemas_are_one_table(tmp_path: Path):
    path = str(tmp_path / "mirror" / "t")
    write_deltalake(path, pa.table({"Id": ["a"]}))
    write_deltalake(path, pa.table({"Id": ["b"], "New": [1]}), mode="append", schema_mode="merge")
    found = DeltaReader(tmp_path).mirror("t")

    assert dict(zip(found["Id"], found["New"], strict=True)) == {"a": None, "b": 1}


def test_a_table_that_its_files_alone_do_not_tell_is_refused(tmp_path: Path):
    rows = pa.table({"Id": ["a"], "Part": [1]})
    write_deltalake(str(tmp_path / "mirror" / "t"), rows, partition_by=["Part"])

    with pytest.raises(ValueError, match="partition columns"):
        DeltaReader(tmp_path).mirror("t")


def test_reading_leaves_no_thread_that_aborts_the_interpreter(tmp_path: Path):
    write_deltalake(str(tmp_path / "mirror" / "t"), pa.table({"Id": ["a"]}))
    program = (
        "import pathlib, sys; from tidegate.local_stack.judge.delta import DeltaReader; "
        "print(DeltaReader(pathlib.Path(sys.argv[1])).mirror('t'))"
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

        assert (done.returncode, done.stdout.strip()) == (0, "{'Id': ('a',)}")


def test_commit_times_are_by_version(tmp_path: Path):
    before_ms = int(datetime.now(UTC).timestamp() * 1_000)
    for _ in range(2):
        write_deltalake(str(tmp_path / "changelog" / "t"), pa.table({"Id": ["a"]}), mode="append")
    times = DeltaReader(tmp_path).commit_times_ms("t")

    assert sorted(times) == [0, 1]
    assert before_ms <= times[0] <= times[1]


def test_columns_of_every_kind_become_canonical():
    instant = datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)
    table = pa.table(
        {
            "number": pa.array([1, None]),
            "text": pa.array(["a", None]),
            "instant": pa.array([instant, None], pa.timestamp("us", tz="UTC")),
            "nanos": pa.array([1_000_005_000, None], pa.timestamp("ns")),
            "float": pa.array([float("nan"), 1.5]),
            "money": pa.array([Decimal("1.5"), None], pa.decimal128(38, 9)),
            "day": pa.array([date(2024, 1, 2), None]),
            "bytes": pa.array([b"x", None]),
            "list": pa.array([[1, None], None]),
        }
    )

    assert table_rows(table) == {
        "number": (1, None),
        "text": ("a", None),
        "instant": (1_000_005, None),
        "nanos": (1_000_005, None),
        "float": ("NaN", 1.5),
        "money": (Decimal("1.5"), None),
        "day": (date(2024, 1, 2), None),
        "bytes": (b"x", None),
        "list": ((1, None), None),
    }
