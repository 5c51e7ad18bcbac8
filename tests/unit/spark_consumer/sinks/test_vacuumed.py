"""What a run has noted before it deleted files."""

from __future__ import annotations

from datetime import UTC, datetime

from tidegate.spark_consumer.sinks.vacuumed import KeptVersions, VacuumedVersions, kept_versions

NOW = datetime(2026, 5, 1, 12, 0, 0, 1, UTC)


class Files:
    def __init__(self):
        self.content = {}

    def read_json(self, name):
        return self.content.get(name)

    def write_json(self, name, content):
        self.content[name] = content


def test_nothing_is_noted_at_first():
    files = Files()
    assert VacuumedVersions(files).last_round() is None
    assert kept_versions(files) == {}


def test_what_was_noted_is_found_by_the_next_run_and_by_readers():
    files = Files()
    noted = VacuumedVersions(files)
    noted.note_round(NOW)
    noted.note_table("mirror/a", KeptVersions(7, 5))
    noted.note_table("mirror/b", KeptVersions(1, 1))
    assert VacuumedVersions(files).last_round() == NOW
    assert kept_versions(files) == {"mirror/a": KeptVersions(7, 5), "mirror/b": KeptVersions(1, 1)}
    VacuumedVersions(files).note_round(NOW)
    assert kept_versions(files) == {"mirror/a": KeptVersions(7, 5), "mirror/b": KeptVersions(1, 1)}


def test_a_version_that_has_lost_files_never_becomes_whole_again():
    files = Files()
    noted = VacuumedVersions(files)
    noted.note_table("mirror/a", KeptVersions(7, 5))
    noted.note_table("mirror/a", KeptVersions(3, 3))
    assert kept_versions(files) == {"mirror/a": KeptVersions(7, 5)}


def test_a_version_whose_files_were_only_rewritten_is_read_from_the_first_whole_one():
    kept = KeptVersions(7, 5)
    assert [kept.readable(version) for version in (4, 5, 6, 7, 8)] == [None, 7, 7, 7, 8]
