"""What a table of Iceberg holds of our releases, whatever was removed, rewritten or moved back."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.iceberg.snapshot_log import (
    IcebergSnapshot,
    SnapshotLog,
    owner_properties,
    release_properties,
)
from tidegate.spark_consumer.sinks.tables import Commit


def commit(release, *, query_id="q", through_us=None):
    through_us = 10 * release + 10 if through_us is None else through_us
    return Commit(query_id, "iceberg_changelog", release, through_us)


class Table:
    """A table in memory, with Iceberg's rules for its current snapshot."""

    def __init__(self):
        self.is_there = False
        self.now = {}
        self.snapshots = {}
        self.head = None

    def load(self):
        return self.is_there

    def properties(self):
        return self.now

    def current(self):
        return self.snapshots.get(self.head)

    def snapshot(self, number):
        return self.snapshots.get(number)

    def add(self, operation="append", marker=None):
        number = 100 + len(self.snapshots)
        self.snapshots[number] = IcebergSnapshot(number, self.head, operation, marker)
        self.head = number
        return number

    def begin(self, release=0):
        self.is_there = True
        self.now = owner_properties(commit(release))
        return self.add(marker=commit(release).preparation)

    def publish(self, release):
        self.now = {**self.now, **release_properties(commit(release))}
        return self.add(marker=commit(release).metadata)

    def expire(self):
        """Remove all snapshots but the current one."""
        self.snapshots = {self.head: self.snapshots[self.head]}


@pytest.fixture
def table():
    found = Table()
    found.begin()
    return found


def log(table):
    found = SnapshotLog("`c`.`n`.`t`", query_id="q", sink="iceberg_changelog")
    found.load(table)
    return found


def test_a_release_is_there_once_it_is_published_and_so_are_those_before(table):
    missing = log(Table())
    assert (missing.exists, missing.has(commit(0)), missing.find_version(5)) == (False, False, None)
    assert not log(table).has(commit(0))
    table.publish(2)
    found = log(table)
    assert [found.has(commit(release)) for release in range(4)] == [True, True, True, False]


def test_each_release_has_the_snapshot_of_the_newest_commit_up_to_it(table):
    begun = table.current().number
    first = table.publish(1)
    table.add("replace")
    second = table.publish(4)
    found = [log(table).version_at(release) for release in range(6)]
    assert found == [begun, first, first, first, second, second]
    later = Table()
    later.begin(3)
    later.publish(3)
    assert [log(later).find_version(release) for release in (1, 3)] == [None, later.head]


def test_a_release_is_remembered_where_all_of_its_snapshots_were_removed(table):
    table.publish(0)
    table.publish(1)
    table.add("replace")
    table.expire()
    found = log(table)
    assert found.has(commit(1))
    assert found.version_at(1) == table.head
    assert found.find_version(0) is None
    with pytest.raises(ConfigError, match="later release"):
        found.refuse_beyond(0)


def test_a_rewrite_of_files_changes_nothing_and_other_commits_are_refused(table):
    table.publish(0)
    table.add("replace")
    assert log(table).has(commit(0))
    for operation, marker in (
        ("append", None), ("overwrite", None), ("delete", None), ("append", '{"audit": 7}'),
    ):  # fmt: skip
        table.add(operation, marker=marker)
        with pytest.raises(ForeignChange, match=f"operation='{operation}'"):
            log(table)
    for marker in ("not json", '{"tidegate": 1}'):
        assert IcebergSnapshot(1, None, "append", marker).release is None


def test_a_table_that_was_moved_back_is_refused(table):
    begun = table.current().number
    table.publish(0)
    table.head = begun
    with pytest.raises(ForeignChange, match="rollback"):
        log(table)


def test_a_table_whose_snapshots_were_replaced_is_refused(table):
    table.publish(0)
    table.head = None
    table.add("replace")
    with pytest.raises(ForeignChange, match="replaced"):
        log(table)


def test_a_table_of_another_writer_or_with_other_releases_is_refused(table):
    table.publish(3)
    found = log(table)
    found.refuse_beyond(3)
    with pytest.raises(ConfigError, match=r"later release.*release_in_table=3"):
        found.refuse_beyond(2)
    with pytest.raises(ConfigError, match="other bounds"):
        found.has(commit(3, through_us=39))
    for properties in ({}, owner_properties(commit(0, query_id="other"))):
        table.now = properties
        with pytest.raises(ConfigError, match="another writer"):
            log(table)


def test_a_table_that_is_deleted_or_older_while_the_run_uses_it_is_missing(table):
    table.publish(3)
    found = log(table)
    table.now = {**table.now, **release_properties(commit(2))}
    with pytest.raises(TableMissing, match="older copy"):
        found.load(table)
    found = log(table)
    table.is_there = False
    with pytest.raises(TableMissing, match="deleted"):
        found.load(table)


def test_a_snapshot_that_a_manifest_names_is_there_or_was_removed(table):
    named = table.publish(3)
    found = log(table)
    found.require_version(named, release=3)
    with pytest.raises(TableMissing, match="version_in_manifest=7"):
        found.require_version(7, release=3)
    table.add("replace")
    table.expire()
    log(table).require_version(named, release=3)
    with pytest.raises(TableMissing):
        log(Table()).require_version(named, release=3)
