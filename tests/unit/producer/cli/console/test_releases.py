"""The releases of an output and the last audit, read from files."""

import json
import os

import pytest

from tests.unit.producer.cli.console.conftest import NOW_US, SECOND_US
from tidegate.producer.cli.console.releases import KEPT, AuditFile, ReleaseReader
from tidegate.schemas.errors import ConfigError, SchemaError

FIRST_US = 1_000 * SECOND_US


def write(folder, number, **changed):
    """A release of ten seconds; its manifest was written two seconds after its end."""
    manifests = folder / "_releases"
    manifests.mkdir(exist_ok=True)
    after_us = FIRST_US + number * 10 * SECOND_US
    through_us = after_us + 10 * SECOND_US
    content = {
        "release": number, "after_us": after_us, "through_us": through_us, "rows": number,
        "tables": {},
    }  # fmt: skip
    path = manifests / f"{number:012d}.json"
    path.write_text(json.dumps({**content, **changed}))
    return path


def test_an_output_without_releases_has_none_until_the_first(tmp_path):
    reader = ReleaseReader(str(tmp_path))
    reader.refresh()
    assert reader.releases == ()
    write(tmp_path, 0)
    reader.refresh()
    assert [release.number for release in reader.releases] == [0]


def test_new_releases_come_at_the_end(tmp_path):
    for number in range(3):
        write(tmp_path, number)
    reader = ReleaseReader(f"file://{tmp_path}")
    reader.refresh()
    path = write(tmp_path, 3)
    os.utime(path, ns=(NOW_US * 1_000, NOW_US * 1_000))
    reader.refresh()
    assert [release.number for release in reader.releases] == [0, 1, 2, 3]
    assert reader.releases[-1].lag_s > 0


def test_an_output_that_begins_again_is_read_from_its_beginning(tmp_path):
    former = [write(tmp_path, number) for number in range(5)]
    reader = ReleaseReader(str(tmp_path))
    reader.refresh()
    for path in former:
        path.unlink()
    reader.refresh()
    assert reader.releases == ()
    for number in range(2):
        write(tmp_path, number, rows=100)
    reader.refresh()
    assert [(release.number, release.rows) for release in reader.releases] == [(0, 100), (1, 100)]
    # Also if it has already passed the number of the newest one that is held.
    for number in range(4):
        write(tmp_path, number, after_us=FIRST_US, through_us=FIRST_US + number, rows=7)
    reader.refresh()
    assert [release.rows for release in reader.releases] == [7] * 4


def test_the_newest_ones_are_held(tmp_path):
    for number in range(KEPT + 5):
        write(tmp_path, number)
    reader = ReleaseReader(str(tmp_path))
    reader.refresh()
    assert len(reader.releases) == KEPT
    assert reader.releases[0].number == 5


def test_other_names_in_the_folder_are_passed_over(tmp_path):
    write(tmp_path, 7)
    (tmp_path / "_releases" / "_first").write_text('{"first": 7, "before": 0}')
    (tmp_path / "_releases" / ".tmp.json").write_text("{}")
    reader = ReleaseReader(str(tmp_path))
    reader.refresh()
    assert [release.number for release in reader.releases] == [7]


@pytest.mark.parametrize("kept", [500, 3])
def test_a_commit_time_has_one_release_held_or_not(tmp_path, monkeypatch, kept):
    monkeypatch.setattr("tidegate.producer.cli.console.releases.KEPT", kept)
    for number in range(2, 20):
        write(tmp_path, number)
    reader = ReleaseReader(str(tmp_path))
    reader.refresh()
    assert len(reader.releases) == min(kept, 18)
    for number in range(2, 20):
        first_us = FIRST_US + number * 10 * SECOND_US + 1
        for commit_us in (first_us, first_us + 10 * SECOND_US - 1):
            assert reader.containing(commit_us).number == number
    # What an older manifest had is not known, and what comes later is not released.
    assert reader.containing(FIRST_US + 1) is None
    assert reader.containing(FIRST_US + 1_000 * SECOND_US) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"release": 1}'])
def test_a_damaged_manifest_is_named(tmp_path, text):
    write(tmp_path, 0).write_text(text)
    with pytest.raises(SchemaError, match=r"_releases|JSON"):
        ReleaseReader(str(tmp_path)).refresh()


@pytest.mark.parametrize("address", ["abfss://c@a.dfs.core.windows.net/x", "hdfs://h/x"])
def test_another_store_is_refused_by_name(address):
    with pytest.raises(ConfigError, match=f"output: {address.partition(':')[0]}"):
        ReleaseReader(address)


def test_an_audit_is_shown_as_it_was_printed(tmp_path):
    path = tmp_path / "audit.json"
    assert AuditFile(str(path)).read() is None
    path.write_text(
        json.dumps(
            {"proved": False, "release": 3, "changes": 9, "mismatches": [{}],
             "mismatches_not_listed": 4}
        )
    )  # fmt: skip
    audit = AuditFile(str(path)).read()
    assert (audit.is_proved, audit.release, audit.changes, audit.mismatches) == (False, 3, 9, 5)
    path.write_text("{}")
    with pytest.raises(SchemaError, match="audit --json"):
        AuditFile(str(path)).read()
