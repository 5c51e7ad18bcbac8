"""Tables whose files are written here: which files a snapshot has, and what is refused."""

from __future__ import annotations

import json

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.judge.iceberg import IcebergReader, iceberg_folders, read_iceberg

MANIFESTS = {
    "type": "record", "name": "manifest_file", "fields": [
        {"name": "manifest_path", "type": "string"}, {"name": "content", "type": "int"},
    ],
}  # fmt: skip
ENTRIES = {
    "type": "record", "name": "manifest_entry", "fields": [
        {"name": "status", "type": "int"},
        {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": [
            {"name": "file_path", "type": "string"}]}},
    ],
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    """A table whose snapshots are added by a call: number, and the status of each file by name."""
    folder = tmp_path / "warehouse" / "bank_mirror" / "t"
    metadata, data = folder / "metadata", folder / "data"
    metadata.mkdir(parents=True)
    data.mkdir()
    snapshots = []

    def location(path):
        return f"file:{path}"

    def write(version, current):
        content = {"snapshots": list(snapshots), "current-snapshot-id": current}
        (metadata / f"v{version}.metadata.json").write_text(json.dumps(content))

    def add(number, files, *, content=0):
        for name in files:
            pq.write_table(pa.table({"id": [name]}), data / name)
        entries = [
            {"status": status, "data_file": {"file_path": location(data / name)}}
            for name, status in files.items()
        ]
        manifest, listed = metadata / f"{number}-m0.avro", metadata / f"snap-{number}.avro"
        with manifest.open("wb") as file:
            fastavro.writer(file, ENTRIES, entries)
        with listed.open("wb") as file:
            one = {"manifest_path": location(manifest), "content": content}
            fastavro.writer(file, MANIFESTS, [one])
        snapshots.append({"snapshot-id": number, "manifest-list": location(listed)})

    write(1, -1)
    (metadata / "version-hint.text").write_text("1")
    return folder, add, write


def names(found):
    return [row["id"] for _, content in found for row in content.to_pylist()]


def test_a_snapshot_has_the_files_that_it_did_not_delete(table):
    folder, add, write = table
    assert read_iceberg(folder) == []
    assert IcebergReader(folder.parents[1]).mirror("t") == {}
    add(1, {"a": 1, "b": 1})
    add(2, {"a": 2, "b": 0, "c": 1})
    write(9, 1)
    assert names(read_iceberg(folder)) == ["a", "b"]
    write(10, 2)
    assert names(read_iceberg(folder)) == ["b", "c"]
    assert names(read_iceberg(folder, snapshot=1)) == ["a", "b"]
    reader = IcebergReader(folder.parents[1])
    assert (reader.mirror_tables(), reader.changelogs()) == (["t"], [])
    assert reader.mirror("t") == {"id": ("b", "c")}
    assert reader.mirror("t", version=1) == {"id": ("a", "b")}


def test_what_is_not_there_or_not_in_data_files_is_refused(table):
    folder, add, write = table
    add(1, {"a": 1})
    add(2, {"a": 1}, content=1)
    write(2, 1)
    with pytest.raises(ValueError, match="has no snapshot 7"):
        read_iceberg(folder, snapshot=7)
    with pytest.raises(ValueError, match="deletes rows"):
        read_iceberg(folder, snapshot=2)


def test_tables_are_found_by_the_kind_of_their_namespace(table):
    folder, _, _ = table
    warehouse = folder.parent.parent
    (warehouse / "bank_changelog" / "u" / "metadata").mkdir(parents=True)
    assert iceberg_folders(warehouse, "mirror") == {"t": folder}
    assert list(iceberg_folders(warehouse, "changelog")) == ["u"]
