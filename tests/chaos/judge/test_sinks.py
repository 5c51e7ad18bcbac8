"""Each way in which a further sink can be wrong is named, and how each is read."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.chaos.judge import sinks as judge_sinks
from tests.chaos.judge.logged_source import LoggedSource
from tests.chaos.judge.order_key import order_key_of
from tests.chaos.judge.sinks import (
    compare_changelog_by_key,
    compare_histories,
    compare_mirror_by_key,
    compare_places,
    in_order_of_batches,
    since,
)
from tidegate.local_stack.judge.delta import ReleaseManifest
from tidegate.local_stack.judge.log import LoggedTransaction, Place
from tidegate.local_stack.judge.source import SourceTable

A, B, C, D = (Place(us, "t", (0, 0), 0) for us in (1, 2, 3, 4))
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([A, B], f"lacks {C}"),
        ([A, B, B, C], f"has {B} 2 times"),
        ([A, B, C, D], f"has {D}, which was not released to it"),
        ([B, A, C], "not in commit order"),
    ],
)
def test_changes_that_differ_are_named(found: list[Place], fault: str):
    assert compare_places([A, B, C], [A, B, C]) == []
    (text,) = compare_places(found, [A, B, C])
    assert fault in text


def change(place: Place, key: int = 1) -> dict[str, Any]:
    return {"key": {"id": key}, "order_key": order_key_of(place)}


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([change(A), change(C)], f"lacks {B}"),
        ([change(A), change(B), change(C), change(D)], "which was not released"),
        ([change(A), change(B), change(B), change(C)], f"{B} 2 times"),
        ([change(B), change(A), change(C)], "behind a newer one"),
    ],
)
def test_changes_by_key_that_differ_are_named(rows: list[dict[str, Any]], fault: str):
    right = {"t": [change(C, 2), change(A), change(B)]}
    assert compare_changelog_by_key(right, [A, B, C]) == []
    (text,) = compare_changelog_by_key({"t": rows}, [A, B, C])
    assert fault in text


def test_files_are_read_by_batch_and_within_one_by_name():
    files = [[{"batch": 1, "n": 2}], [{"batch": 0, "n": 0}, {"batch": 0, "n": 1}], []]
    files.append([{"batch": 1, "n": 3}])
    assert [one["n"] for one in in_order_of_batches(files)] == [0, 1, 2, 3]


def row(key: int, value: str | None, state: str = "complete") -> dict[str, Any]:
    return {"id": key, "v": value, "row_state": state, "order_key": b""}


def test_a_mirror_by_key_has_the_mirrors_rows_and_no_key_twice():
    mirror = [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]
    right = [row(1, "b"), row(2, "c"), row(3, None, "deleted")]

    def compare(*found: dict[str, Any]) -> list[str]:
        return compare_mirror_by_key(found, mirror, table="t", key=["id"])

    assert compare(*right) == []
    assert "lacks" in compare(*right[1:])[0]
    assert "unlike" in compare(row(1, "a"), *right[1:])[0]
    assert "unlike" in compare(*right, row(4, "d"))[0]
    assert "2 times" in compare(*right, row(2, None, "deleted"))[0]


def version(key, value, begin, end=None):
    moments = [None if one is None else T0 + timedelta(seconds=one) for one in (begin, end)]
    return {
        "id": key, "v": value, "valid_from": moments[0], "valid_to": moments[1],
        "is_current": end is None,
    }  # fmt: skip


def test_a_history_has_the_mirrors_rows_and_versions_of_some_duration():
    mirror = [{"id": 1, "v": "b"}]
    right = [version(1, "a", 0, 1), version(1, "b", 1)]
    assert compare_histories(right, mirror, table="t") == []
    assert compare_histories([version(1, "b", 1, 1), *right], mirror, table="t")
    assert compare_histories([version(1, "a", 0)], mirror, table="t")
    assert compare_histories([*right, version(2, "c", 1)], mirror, table="t")
    assert compare_histories([*right, version(1, "b", 2)], mirror, table="t")


def test_what_a_sink_must_hold_begins_with_its_first_release():
    releases = [ReleaseManifest(n, 10 * n, 10 * n + 10, 1, {}) for n in range(3)]
    committed = [LoggedTransaction(us, "t", "", frozenset(), ()) for us in (5, 10, 11, 25)]
    assert since(0, releases, committed) == (releases, committed)
    assert since(1, releases, committed) == (releases[1:], committed[2:])
    assert since(3, releases, committed) == ([], [])


def event(place: Place) -> dict[str, Any]:
    us, transaction, (high, low), number = place
    return {"sort_keys": [us // 1_000, us, transaction, f"{high:016x}{low:016x}", number]}


EVENT = {"type": "record", "name": "E", "fields": [
    {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
]}  # fmt: skip


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Sinks of one release with two changes of an empty source; only the by-key sinks are Delta."""
    (tmp_path / "_releases").mkdir()
    (tmp_path / "parquet").mkdir()
    keys = pa.array([order_key_of(B), order_key_of(A)])
    pq.write_table(pa.table({"ordinal": [1, 0], "order_key": keys}), tmp_path / "parquet" / "f")
    entry = {"changelog": {"path": "c", "version": None}, "parquet": {"path": "parquet/f"}}
    manifest = {"release": 0, "after_us": 0, "through_us": 9, "rows": 0, "tables": {"t": entry}}
    (tmp_path / "_releases" / "000000000000.json").write_text(json.dumps(manifest))
    for table, minute in (("t", "00"), ("u", "01")):
        (tmp_path / "datastream_files" / table / minute).mkdir(parents=True)
    folder = tmp_path / "datastream_files"
    lines = [json.dumps(event(one)) for one in (A, C)]
    (folder / "t" / "00" / "0-0.jsonl").write_text("\n".join(lines))
    (folder / "t" / "00" / "0-1.jsonl.gz").write_bytes(gzip.compress(json.dumps(event(B)).encode()))
    with (folder / "u" / "01" / "0-0.avro").open("wb") as file:
        fastavro.writer(file, EVENT, [event(D)])
    write_deltalake(str(tmp_path / "changelog_by_key" / "t"), pa.table({"batch": [0], "n": [1]}))
    return tmp_path


def test_what_a_sink_has_is_read_from_its_files(output: Path):
    assert judge_sinks._places_of_parquet(output) == [A, B]
    assert judge_sinks._places_of_datastream_files(output) == {"t": [A, C, B], "u": [D]}
    by_key = output / "changelog_by_key"
    assert judge_sinks._files(by_key / "t") == [[{"batch": 0, "n": 1}]]
    assert judge_sinks._rows(by_key / "t") == [{"batch": 0, "n": 1}]
    assert judge_sinks._files(output / "none") == judge_sinks._rows(output / "none") == []


def test_all_sinks_are_judged_and_those_that_are_wrong_are_named(
    output: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(judge_sinks, "_places_of_topic", lambda *_: [])
    monkeypatch.setattr(judge_sinks, "_files", lambda _: [])
    found = judge_sinks.judge_sinks(
        output,
        {},
        bootstrap_servers="",
        ordered_topic="o",
        transactions=[],
        source=LoggedSource([], {"t": SourceTable(("K",), ("K",))}, {}),
    )
    assert {name for name, faults in found.items() if faults} == {"parquet", "datastream_files"}
    assert "the files of t are not in commit order" in found["datastream_files"]
    assert found.keys() >= {"ordered_topic", "iceberg_changelog", "iceberg_mirror", "history"}
