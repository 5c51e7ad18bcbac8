"""Which version of a table carries which release, over a table in memory."""

import json

import pytest

from tests.simulation.delta import DeltaCommit, DeltaTable
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.spark_consumer.sinks.delta import commit_log
from tidegate.spark_consumer.sinks.delta.commit_log import Commit, CommitLog


def release(number, *, query_id="q", sink="mirror", through_us=None):
    return Commit(query_id, sink, number, number * 10 if through_us is None else through_us)


@pytest.fixture
def table():
    one = DeltaTable()
    one.create(["a"], release(0).preparation, None)
    return one


def write(table, number, **of):
    table.commits.append(DeltaCommit("MERGE", release(number, **of).metadata, ("a",)))


def opened(table):
    log = CommitLog(table, "mirror/t", query_id="q", sink="mirror")
    log.load()
    return log


def test_a_table_that_does_not_exist_has_nothing():
    log = opened(DeltaTable())
    assert not log.exists
    assert log.written(release(0)) is None


def test_each_release_has_the_version_of_its_own_commit(table):
    write(table, 0)
    table.optimize()
    write(table, 2)
    log = opened(table)
    assert [log.version_at(number) for number in (0, 1, 2, 3)] == [1, 1, 3, 3]
    assert [log.written(release(n)) is not None for n in range(3)] == [True, False, True]


def test_a_preparation_is_no_release(table):
    assert opened(table).written(release(0)) is None


def test_new_commits_are_followed(table):
    log = opened(table)
    write(table, 0)
    assert log.written(release(0)) is None
    log.follow()
    assert log.written(release(0)).version == 1


def test_old_commits_are_read_again_when_they_are_needed(table, monkeypatch):
    monkeypatch.setattr(commit_log, "_RECENT", 4)
    for number in range(20):
        write(table, number)
    log = CommitLog(table, "mirror/t", query_id="q", sink="mirror")
    log.load(limit=4)
    assert log.version_at(19) == 20
    assert log.version_at(2) == 3
    assert log.written(release(5)).version == 6


@pytest.mark.parametrize("foreign", [{"query_id": "other"}, {"sink": "changelog"}])
def test_commits_of_another_writer_are_refused(table, foreign):
    write(table, 1, **foreign)
    with pytest.raises(ConfigError, match="another writer"):
        opened(table)


@pytest.mark.parametrize("metadata", [None, "not JSON", "[]", json.dumps({"tidegate": 1})])
def test_commits_without_our_metadata_are_refused_unless_they_are_maintenance(table, metadata):
    log = opened(table)
    table.commits.append(DeltaCommit("VACUUM END", metadata, ("a",)))
    log.follow()
    table.commits.append(DeltaCommit("DELETE", metadata, ("a",)))
    with pytest.raises(ConfigError, match="operation='DELETE'"):
        log.follow()


def test_a_table_ahead_of_the_checkpoint_is_refused(table):
    write(table, 4)
    log = opened(table)
    log.refuse_beyond(4)
    with pytest.raises(ConfigError, match="later release"):
        log.refuse_beyond(3)


def test_a_release_with_other_bounds_is_refused(table):
    write(table, 4)
    with pytest.raises(ConfigError, match="other bounds"):
        opened(table).written(release(4, through_us=41))


def test_releases_out_of_order_are_a_bug(table):
    write(table, 4)
    write(table, 3)
    with pytest.raises(InvariantViolation):
        opened(table)


def test_a_transaction_is_named_by_query_and_sink():
    assert release(4).application == "q/mirror"
