"""The work between two batches: bounded, of the checkpoint's writer only, and never fatal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.unit.spark_consumer.sinks.memory_files import MemoryFiles
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.delta import maintenance as module
from tidegate.spark_consumer.sinks.delta.direct_files import DirectFiles
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.maintenance import (
    TableMaintenance,
    VacuumPolicy,
    find_maintenance,
)
from tidegate.spark_consumer.sinks.vacuumed import KeptVersions, VacuumedVersions, kept_versions

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


def test_few_logs_are_read_in_one_batch_and_all_in_the_end(tables, monkeypatch):
    monkeypatch.setattr(module, "_LOOKS_PER_BATCH", 2)
    names = [f"changelog/{n}" for n in range(5)]
    for n, name in enumerate(names):
        tables.add(name, 4 + n)
    maintain = maintenance(tables)
    maintain()
    assert tables.files(*names) == [4, 5, 6, 1, 1]
    maintain()
    maintain()
    assert tables.files(*names) == [1] * 5


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
