"""The manifest of a release, and the search for the newest one at a time."""

from __future__ import annotations

import json

import pytest

from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    newest_manifest,
    read_manifest,
    write_manifest,
)
from tidegate.spark_consumer.sinks.port import TableVersion


class Files:
    """A folder in memory, which counts what is read."""

    def __init__(self):
        self.content = {}
        self.reads = self.lists = 0

    def read_json(self, name):
        self.reads += 1
        text = self.content.get(name)
        return None if text is None else json.loads(text)

    def write_json(self, name, content):
        self.content[name] = json.dumps(content)

    def names(self, folder):
        self.lists += 1
        found = (name.rpartition("/") for name in self.content)
        return sorted(name for head, _, name in found if head == folder)


def manifest(number, through_us):
    tables = {
        "accounts": {
            "changelog": TableVersion("changelog/accounts", number + 1, 10),
            "mirror": TableVersion("mirror/accounts", number),
        }
    }
    return Manifest(number, "q", number, through_us - 10, through_us, 10, tables)


def test_a_manifest_is_read_as_it_was_written():
    files = Files()
    write_manifest(files, manifest(3, 50))
    assert read_manifest(files, 3) == manifest(3, 50)
    assert read_manifest(files, 4) is None
    (name,) = files.content
    assert name == "_releases/000000000003.json"
    content = json.loads(files.content[name])
    assert content == {
        "release": 3,
        "query_id": "q",
        "batch": 3,
        "after_us": 40,
        "through_us": 50,
        "rows": 10,
        "tables": {
            "accounts": {
                "changelog": {"path": "changelog/accounts", "version": 4, "rows": 10},
                "mirror": {"path": "mirror/accounts", "version": 3},
            }
        },
    }


@pytest.mark.parametrize("releases", [1, 2, 7, 64])
def test_the_newest_release_at_a_time_is_found_in_few_reads(releases):
    files = Files()
    for number in range(releases):
        write_manifest(files, manifest(number, 100 * (number + 1)))
    files.write_json("_releases/notes.txt", {})
    assert newest_manifest(files, watermark_us=99) is None
    for number in range(releases):
        for time_us in (100 * (number + 1), 100 * (number + 1) + 99):
            files.reads = 0
            found = newest_manifest(files, watermark_us=time_us)
            assert found == manifest(number, 100 * (number + 1))
            assert files.reads <= 2 * releases.bit_length() + 4
    assert files.lists == 0
    assert newest_manifest(files, watermark_us=10**18).release == releases - 1


def test_where_the_first_releases_are_gone_the_newest_is_found_in_a_list():
    files = Files()
    for number in range(5, 12):
        write_manifest(files, manifest(number, 100 * (number + 1)))
    assert newest_manifest(files, watermark_us=599) is None
    for number in range(5, 12):
        assert newest_manifest(files, watermark_us=100 * (number + 1)).release == number
    assert newest_manifest(files, watermark_us=10**18).release == 11


@pytest.mark.parametrize(
    "content", [{}, {"release": 1, "tables": []}, {"tables": {"t": {"m": {}}}}]
)
def test_what_is_no_manifest_is_refused(content):
    with pytest.raises(SchemaError, match="manifest"):
        Manifest.of(content)


def test_a_manifest_names_what_a_table_leaves_out():
    files = Files()
    mirror = TableVersion("mirror/a", 3, left_out=("column b", "exclude_delete"))
    written = Manifest(3, "q", 3, 40, 50, 10, {"a": {"mirror": mirror}})
    write_manifest(files, written)
    assert read_manifest(files, 3) == written
    (content,) = map(json.loads, files.content.values())
    assert content["tables"]["a"]["mirror"]["left_out"] == ["column b", "exclude_delete"]
