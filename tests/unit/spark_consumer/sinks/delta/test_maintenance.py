"""The work between two batches: bounded, of the checkpoint's writer only, and never fatal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

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
from tidegate.spark_consumer.sinks.vacuumed import KeptVersions, kept_versions

MIB = 1024**2
NEVER = VacuumPolicy(retention_hours=0, interval_ms=60_000)
DAILY = VacuumPolicy(retention_hours=24, interval_ms=3_600_000)


class Tables:
    """Stands for a sink: tables of an output, one file for each commit."""

    name = "changelog"

    def __init__(self, output):
        self.output = output
        self.paths = []

    def add(self, path, files, **options):
        for n in range(files):
            rows = pyarrow.table({"release": [n], "ordinal": [0], "id": [n]})
            write_deltalake(self.at(path), rows, mode="append", **options)
        if path not in self.paths:
            self.paths.append(path)

    def at(self, path):
        return f"{self.output}/{path}"

    def files(self, path):
        return len(DeltaTable(self.at(path)).file_uris())

    def ids(self, path):
        return sorted(DeltaTable(self.at(path)).to_pyarrow_table()["id"].to_pylist())

    def heads(self):
        return {path: DeltaTable(self.at(path)).version() for path in self.paths}

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        return {}


class Files:
    def __init__(self):
        self.content = {}

    def read_json(self, name):
        return self.content.get(name)

    def write_json(self, name, content):
        self.content[name] = content

    def delete(self, names):
        pass

    def names(self, folder):
        return []


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


def maintenance(tables, *, vacuum=NEVER, files_min=4, target_bytes=MIB, **changes):
    options = {
        "manifests": Files(),
        "limits": CompactionLimits(files_min, target_bytes),
        "vacuum": vacuum,
        "require_writer": lambda: None,
    }
    place = DirectPlace(str(tables.output))
    return TableMaintenance(place, [tables], **(options | changes))


def test_small_files_become_one_and_rows_stay(tables):
    tables.add("changelog/a", 5)
    tables.add("mirror/b", 3)
    maintain = maintenance(tables)
    maintain()
    assert (tables.files("changelog/a"), tables.files("mirror/b")) == (1, 3)
    assert tables.ids("changelog/a") == list(range(5))


def test_a_table_is_looked_at_again_after_as_many_commits(tables, monkeypatch):
    opened = []
    real = TableMaintenance._opened
    monkeypatch.setattr(
        TableMaintenance, "_opened", lambda self, path: opened.append(path) or real(self, path)
    )
    tables.add("changelog/a", 5)
    maintain = maintenance(tables)
    maintain()
    looks = len(opened)
    assert looks == 2
    # Its own commit is one of the four.
    tables.add("changelog/a", 2)
    maintain()
    assert len(opened) == looks
    tables.add("changelog/a", 1)
    maintain()
    assert len(opened) > looks


def test_one_batch_does_a_bounded_part_and_the_next_ones_the_rest(tables, monkeypatch):
    monkeypatch.setattr(module, "_FILES_PER_BATCH", 6)
    tables.add("changelog/a", 15)
    tables.add("changelog/b", 10)
    maintain = maintenance(tables)
    maintain()
    assert (tables.files("changelog/a"), tables.files("changelog/b")) == (10, 10)
    for _ in range(6):
        maintain()
    assert tables.files("changelog/a") + tables.files("changelog/b") <= 8
    assert tables.ids("changelog/a") == list(range(15))


def test_few_logs_are_read_in_one_batch_and_all_in_the_end(tables, monkeypatch):
    monkeypatch.setattr(module, "_LOOKS_PER_BATCH", 2)
    for n in range(5):
        tables.add(f"changelog/{n}", 4 + n)
    maintain = maintenance(tables)
    maintain()
    assert [tables.files(f"changelog/{n}") for n in range(5)] == [4, 5, 6, 1, 1]
    maintain()
    maintain()
    assert [tables.files(f"changelog/{n}") for n in range(5)] == [1] * 5


def test_a_changelog_is_in_order_and_a_mirror_has_none(tables, monkeypatch):
    orders = {}
    real = DirectFiles.data_files
    monkeypatch.setattr(
        DirectFiles,
        "data_files",
        lambda self, order: (
            (
                orders.setdefault(Path(self._table.table_uri).parent.name, order)
                and real(self, order)
            )
            or real(self, order)
        ),
    )
    folders = ("changelog", "incomplete", "history_incomplete", "mirror", "history")
    for folder in folders:
        tables.add(f"{folder}/a", 4)
    maintenance(tables)()
    in_order = ("release", "ordinal")
    assert orders == dict.fromkeys(folders[:3], in_order) | {"mirror": (), "history": ()}
    assert [tables.files(f"{folder}/a") for folder in folders] == [1] * 5


def test_a_replaced_run_changes_nothing_and_ends(tables):
    def replaced():
        message = "replaced"
        raise WriterReplaced(message)

    tables.add("changelog/a", 5)
    maintain = maintenance(tables, require_writer=replaced, vacuum=DAILY)
    with pytest.raises(WriterReplaced):
        maintain()
    assert tables.files("changelog/a") == 5
    nothing_to_compact = maintenance(
        tables, require_writer=replaced, vacuum=DAILY, files_min=0, manifests=(files := Files())
    )
    with pytest.raises(WriterReplaced):
        nothing_to_compact()
    assert kept_versions(files) == {}


def test_what_fails_is_left_for_later_and_the_others_are_done(tables, capsys):
    tables.add("changelog/a", 6)
    tables.add("changelog/b", 5)
    broken = DeltaTable(tables.at("changelog/a")).file_uris()[0]
    Path(broken).unlink()
    maintain = maintenance(tables)
    maintain()
    assert tables.files("changelog/b") == 1
    printed = capsys.readouterr().out
    assert "table not maintained" in printed
    assert "changelog/a" in printed
    maintain()
    assert "table not maintained" not in capsys.readouterr().out


def test_a_table_with_a_feature_is_left_alone(tables):
    tables.add("changelog/a", 5, configuration={"delta.enableChangeDataFeed": "true"})
    maintenance(tables)()
    assert tables.files("changelog/a") == 5


def test_without_compaction_nothing_is_opened(tables):
    tables.add("changelog/a", 5)
    maintenance(tables, files_min=0)()
    assert tables.files("changelog/a") == 5


def test_vacuum_notes_what_it_keeps_before_it_deletes(tables, monkeypatch):
    tables.add("changelog/a", 3)
    manifests = Files()
    later = datetime.now(UTC) + timedelta(hours=48)
    noted = []
    monkeypatch.setattr(
        DirectFiles,
        "vacuum",
        lambda self, **_: noted.append(kept_versions(manifests)) or 0,
    )
    maintain = maintenance(
        tables, vacuum=DAILY, files_min=0, manifests=manifests, now=lambda: later
    )
    maintain()
    assert noted == [{"changelog/a": KeptVersions(2, 2)}]


def test_one_table_is_vacuumed_at_a_time_and_each_once_in_a_round(tables, monkeypatch):
    for name in "abc":
        tables.add(f"mirror/{name}", 1)
    deleted = []
    monkeypatch.setattr(
        DirectFiles,
        "vacuum",
        lambda self, *, retention_hours: (
            deleted.append((Path(self._table.table_uri).name, retention_hours)) or 0
        ),
    )
    clock = SimpleNamespace(now=datetime.now(UTC))
    manifests = Files()

    def made():
        return maintenance(
            tables, vacuum=DAILY, manifests=manifests, files_min=0, now=lambda: clock.now
        )

    maintain = made()
    for count in (1, 2, 3, 3, 3):
        maintain()
        assert len(deleted) == count
    assert deleted == [(name, 24) for name in "abc"]
    made()()  # a restart begins no new round
    assert len(deleted) == 3
    clock.now += timedelta(hours=1)
    maintain()
    assert len(deleted) == 4


@pytest.mark.parametrize(
    ("files_min", "hours", "sinks", "expected"),
    [(4, 0, 1, True), (0, 24, 1, True), (0, 0, 1, False), (4, 24, 0, False)],
)
def test_there_is_none_where_nothing_is_to_do(tables, files_min, hours, sinks, expected):
    found = find_maintenance(
        str(tables.output),
        [tables, SimpleNamespace(name="function")][1 - sinks :],
        manifests=Files(),
        limits=CompactionLimits(files_min, MIB),
        vacuum=VacuumPolicy(retention_hours=hours, interval_ms=60_000),
        require_writer=lambda: None,
    )
    assert (found is not None) is expected


def test_where_delta_rs_does_not_reach_the_output_a_line_names_the_cause(tables, capsys):
    found = find_maintenance(
        "hdfs://host/out",
        [tables],
        manifests=Files(),
        limits=CompactionLimits(4, MIB),
        vacuum=NEVER,
        require_writer=lambda: None,
    )
    assert found is None
    assert "tables are not compacted" in capsys.readouterr().out
