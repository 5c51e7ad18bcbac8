"""What a table holds of our releases, whatever was removed, rewritten or moved back."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.iceberg.snapshot_log import (
    IcebergSnapshot,
    SnapshotLog,
    owner_properties,
    release_properties,
)


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


def test_a_table_that_is_not_there_holds_nothing():
    found = log(Table())
    assert not found.exists
    assert not found.has(commit(0))
    assert found.find_version(5) is None


def test_a_release_is_there_once_it_is_published_and_so_are_those_before(table):
    assert not log(table).has(commit(0))
    table.publish(2)
    found = log(table)
    assert [found.has(commit(release)) for release in range(4)] == [True, True, True, False]


def test_each_release_has_the_snapshot_of_the_newest_commit_up_to_it(table):
    begun = table.current().number
    first = table.publish(1)
    table.add("replace")
    second = table.publish(4)
    found = log(table)
    assert [found.version_at(release) for release in range(6)] == [
        begun, first, first, first, second, second,
    ]  # fmt: skip


def test_a_table_that_began_later_has_no_version_of_before():
    table = Table()
    table.begin(3)
    table.publish(3)
    assert log(table).find_version(1) is None
    assert log(table).find_version(3) == table.head


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
    for operation in ("append", "overwrite", "delete"):
        table.add(operation)
        with pytest.raises(ForeignChange, match=f"operation='{operation}'"):
            log(table)


def test_a_commit_under_a_name_of_others_is_one_of_others(table):
    table.add(marker='{"audit": 7}')
    with pytest.raises(ForeignChange):
        log(table)
    assert IcebergSnapshot(1, None, "append", "not json").release is None
    assert IcebergSnapshot(1, None, "append", '{"tidegate": 1}').release is None


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


@pytest.mark.parametrize("properties", [{}, owner_properties(commit(0, query_id="other"))])
def test_a_table_of_another_writer_is_refused(table, properties):
    table.now = properties
    with pytest.raises(ConfigError, match="another writer"):
        log(table)


def test_a_table_ahead_of_the_checkpoint_is_refused(table):
    table.publish(3)
    log(table).refuse_beyond(3)
    with pytest.raises(ConfigError, match=r"later release.*release_in_table=3"):
        log(table).refuse_beyond(2)


def test_a_release_with_another_end_is_refused(table):
    table.publish(3)
    with pytest.raises(ConfigError, match="other bounds"):
        log(table).has(commit(3, through_us=39))


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
