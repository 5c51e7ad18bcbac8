"""The manifest of a release, and the search for the newest one at a time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.sinks import manifest as module
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    drop_manifests,
    first_manifest,
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

    def delete(self, names):
        for name in names:
            self.content.pop(name, None)

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


def test_what_is_wrong_with_a_release_stands_in_its_manifest_and_nothing_where_it_is_whole():
    files = Files()
    wrong = replace(manifest(3, 50), mismatches=7, first_mismatches=({"fault": "few"},))
    write_manifest(files, wrong)
    write_manifest(files, manifest(4, 60))
    assert read_manifest(files, 3) == wrong
    assert not {"mismatches", "first_mismatches"} & manifest(4, 60).content().keys()


def test_a_manifest_names_the_gaps_of_the_output_and_nothing_where_there_are_none():
    files = Files()
    lacking = replace(manifest(3, 50), gaps=(PartitionGap("t", 42, 45, "ops", 60),))
    write_manifest(files, lacking)
    assert read_manifest(files, 3) == lacking
    assert lacking.content()["gaps"] == [
        {"token": "t", "from_us": 42, "until_us": 45, "accepted_by": "ops", "accepted_us": 60}
    ]
    assert "gaps" not in manifest(4, 60).content()


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
            assert files.reads <= 2 * releases.bit_length() + 6
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


@pytest.mark.parametrize("damage", ["{}", None, "other mirrors"])
def test_a_restored_folder_of_manifests_is_read_as_it_was(damage):
    files = Files()
    for number in range(5):
        write_manifest(files, manifest(number, 100 * (number + 1)))
    kept = dict(files.content)
    if damage == "other mirrors":
        content = json.loads(files.content["_releases/000000000004.json"])
        mirror = {"path": "mirror/t", "version": 1, "release": 2}
        content["tables"]["t"] = {"mirror": mirror}
        files.write_json("_releases/000000000004.json", content)
    else:
        files.content = {} if damage is None else dict.fromkeys(kept, damage)
    if damage is None:
        assert newest_manifest(files, watermark_us=10**18) is None
    else:
        with pytest.raises(SchemaError, match="Restore the output's _releases folder"):
            assert newest_manifest(files, watermark_us=10**18).mirror_release
    files.content = kept
    found = newest_manifest(files, watermark_us=10**18)
    assert found == manifest(4, 500)
    assert found.mirror_release == 4


def test_a_manifest_names_what_a_table_leaves_out():
    files = Files()
    mirror = TableVersion("mirror/a", 3, left_out=("column b", "exclude_delete"))
    written = Manifest(3, "q", 3, 40, 50, 10, {"a": {"mirror": mirror}})
    write_manifest(files, written)
    assert read_manifest(files, 3) == written
    (content,) = map(json.loads, files.content.values())
    assert content["tables"]["a"]["mirror"]["left_out"] == ["column b", "exclude_delete"]


def published(releases):
    files = Files()
    for number in range(releases):
        write_manifest(files, manifest(number, 100 * (number + 1)))
    return files


def kept(files):
    return [int(name[-17:-5]) for name in sorted(files.content) if name.endswith(".json")]


def test_dropped_manifests_are_gone_and_the_others_are_found_without_a_list():
    files = published(70)
    for before in (7, 30, 30, 64):
        drop_manifests(files, before=before)
        assert kept(files) == list(range(before, 70))
        assert first_manifest(files) == before
        for number in range(before, 70):
            assert newest_manifest(files, watermark_us=100 * (number + 1)).release == number
        assert newest_manifest(files, watermark_us=100 * before) is None
    assert files.lists == 0


def test_many_are_dropped_in_several_turns(monkeypatch):
    monkeypatch.setattr(module, "DROPPED_AT_ONCE", 10)
    files = published(50)
    for first in (10, 20, 30, 33, 33):
        drop_manifests(files, before=33)
        assert kept(files)[0] == first_manifest(files) == first


class Killed(Exception):
    pass


class Dying(Files):
    """Dies before one of its changes."""

    def __init__(self, content, dies_at):
        super().__init__()
        self.content, self._left = content, dies_at

    def _step(self):
        self._left -= 1
        if self._left == 0:
            raise Killed

    def write_json(self, name, content):
        self._step()
        super().write_json(name, content)

    def delete(self, names):
        for name in names:
            self._step()
            super().delete([name])


@pytest.mark.parametrize("dies_at", range(1, 12))
def test_a_kill_at_any_step_leaves_what_is_kept_and_a_replay_ends_it(dies_at):
    files = published(20)
    drop_manifests(files, before=5)
    with pytest.raises(Killed):
        drop_manifests(Dying(files.content, dies_at), before=15)
    for number in range(15, 20):
        assert newest_manifest(files, watermark_us=100 * (number + 1)).release == number
    drop_manifests(files, before=15)
    assert kept(files) == list(range(15, 20))


def test_a_search_during_which_manifests_are_dropped_is_repeated():
    files = published(64)

    class Overtaken:
        """A reader whose first look at a manifest comes before those below 60 are dropped."""

        def __init__(self):
            self.names, self.looks = files.names, 0

        def read_json(self, name):
            content = files.read_json(name)
            self.looks += 1
            if self.looks == 3:
                drop_manifests(files, before=60)
            return content

    assert newest_manifest(Overtaken(), watermark_us=10**18).release == 63
    assert newest_manifest(published(64), watermark_us=10**18).release == 63
