"""Which version of a table carries which release, over a table in memory."""

import json

import pytest

from tests.simulation.delta import DeltaCommit, DeltaTable
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.delta import commit_log
from tidegate.spark_consumer.sinks.delta.commit_log import Commit, CommitLog, TableCommit


def release(number, *, query_id="q", sink="mirror", through_us=None):
    return Commit(query_id, sink, number, number * 10 if through_us is None else through_us)


@pytest.fixture
def table():
    one = DeltaTable()
    one.create(["a"], release(0).preparation, None)
    return one


def write(table, number, **of):
    one = release(number, **of)
    table.commits.append(
        DeltaCommit("MERGE", one.metadata, ("a",), transaction=(one.application, number))
    )


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
    table.maintain()
    write(table, 2)
    log = opened(table)
    assert [log.version_at(number) for number in (0, 1, 2, 3)] == [1, 1, 3, 3]
    assert [log.written(release(n)) is not None for n in range(3)] == [True, False, True]


def test_a_table_that_is_younger_than_a_release_has_no_version_of_it():
    table = DeltaTable()
    table.create(["a"], release(3).preparation, None)
    log = opened(table)
    assert (log.find_version(2), log.find_version(3)) == (None, 0)
    with pytest.raises(InvariantViolation, match="as old as the release"):
        log.version_at(2)


@pytest.mark.parametrize("limit", [2, 256])
def test_the_commits_that_carry_releases_are_found_however_old(table, monkeypatch, limit):
    monkeypatch.setattr(commit_log, "_RECENT", limit)
    table.widen(["a", "b"], release(1).preparation, None)
    for number in (1, 2, 5):
        write(table, number)
    log = CommitLog(table, "mirror/t", query_id="q", sink="mirror")
    log.load(limit=limit)
    assert [one.release for one in log.carriers(after=0, through=5)] == [1, 2, 5]
    assert [one.release for one in log.carriers(after=1, through=4)] == [2]
    assert log.carriers(after=5, through=9) == ()


def test_what_was_adopted_may_concern_the_versions_before_it(table):
    write(table, 1)
    log = opened(table)
    assert not log.has_adopted_since(0)
    text = Commit.adoption("q", "mirror", version=2)
    table.commits.append(DeltaCommit("DELETE", None, ("a",)))
    table.commits.append(DeltaCommit("SET TBLPROPERTIES", text, ("a",)))
    write(table, 2)
    log = opened(table)
    assert [log.has_adopted_since(version) for version in (1, 2, 3)] == [True, True, False]


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


class Foreign:
    """A table's history in which one commit after ours is somebody else's."""

    def __init__(self, table):
        self.commits = list(table.recent(None))
        self.cleaned = 0
        """Versions before this one were deleted, as Delta's log retention does."""
        self.numbers = table.numbers

    def add(self, operation, *, metadata=None, changes_rows=True, mode=None):
        version = len(self.commits)
        self.commits.append(
            TableCommit(version, operation, metadata, {}, changes_rows=changes_rows, mode=mode)
        )
        return version

    def recent(self, limit):
        kept = self.commits[self.cleaned :]
        return kept if limit is None else kept[-limit:]

    def commit(self, version):
        is_there = self.cleaned <= version < len(self.commits)
        return self.commits[version] if is_there else None


def history(table):
    found = Foreign(table)
    log = CommitLog(found, "mirror/t", query_id="q", sink="mirror")
    log.load()
    return found, log


NOT_OURS = [None, "not JSON", "[]", json.dumps({"tidegate": 1})]


@pytest.mark.parametrize("metadata", NOT_OURS)
def test_commits_of_others_that_change_no_row_are_passed_over(table, metadata):
    write(table, 0)
    found, log = history(table)
    for operation in ("OPTIMIZE", "CHANGE COLUMN", "CLUSTER BY", "ADD CONSTRAINT", "anything"):
        found.add(operation, metadata=metadata, changes_rows=False)
    log.follow()
    log.load()
    assert log.head == 6
    assert log.version_at(3) == 1


@pytest.mark.parametrize("metadata", NOT_OURS)
def test_changes_of_rows_by_others_are_refused_at_the_next_look_and_at_each_start(table, metadata):
    found, log = history(table)
    found.add("DELETE", metadata=metadata)
    for look in (log.follow, log.load, log.require_own):
        with pytest.raises(ForeignChange, match="operation='DELETE'") as raised:
            look()
        assert "tidegate-consumer adopt" in str(raised.value)


INHERITED = {
    "a release": release(1).metadata,
    "a preparation": release(1).preparation,
    "an acceptance": Commit.adoption("q", "mirror", version=0),
}


@pytest.mark.parametrize("text", INHERITED.values(), ids=INHERITED)
def test_commits_that_inherited_our_metadata_are_those_of_others(table, text):
    write(table, 1)
    found, log = history(table)
    for operation in ("OPTIMIZE", "SET TBLPROPERTIES", "CHANGE COLUMN", "UPGRADE PROTOCOL"):
        if operation != "SET TBLPROPERTIES" or "adopts" not in text:
            found.add(operation, metadata=text, changes_rows=False)
    for look in (log.follow, log.load, lambda: log.load(limit=2)):
        look()
        assert log.written(release(1)).version == log.version_at(9) == 1
        assert not log.has_adopted_since(0)
    found.commits.append(TableCommit(len(found.commits), "MERGE", release(2).metadata, {}))
    log.follow()
    assert log.version_at(2) == len(found.commits) - 1
    found.add("DELETE", metadata=text)
    for look in (log.follow, log.load):
        with pytest.raises(ForeignChange, match="operation='DELETE'"):
            look()


def test_adopted_changes_are_passed_over_and_later_ones_are_not(table):
    write(table, 0)
    found, log = history(table)
    version = found.add("DELETE")
    found.add("SET TBLPROPERTIES", metadata=Commit.adoption("q", "mirror", version=version))
    log.follow()
    log.load()
    assert log.version_at(0) == 1
    found.add("UPDATE")
    with pytest.raises(ForeignChange, match="operation='UPDATE'"):
        log.load()


def test_an_adoption_of_another_sink_counts_for_nothing(table):
    found, log = history(table)
    version = found.add("DELETE")
    found.add("SET TBLPROPERTIES", metadata=Commit.adoption("q", "changelog", version=version))
    with pytest.raises(ConfigError, match="another writer"):
        log.load()


@pytest.mark.parametrize("operation", ["RESTORE", "CREATE OR REPLACE TABLE", "CLONE"])
def test_what_may_undo_releases_is_refused_even_without_rows(table, operation):
    found, log = history(table)
    found.add(operation, changes_rows=False)
    with pytest.raises(ForeignChange, match="restore the checkpoint") as raised:
        log.load()
    assert "adopt" not in str(raised.value)


@pytest.mark.parametrize(
    ("operation", "mode", "is_adoptable"),
    [
        ("DELETE", None, True),
        ("UPDATE", None, True),
        ("MERGE", None, True),
        ("TRUNCATE", None, True),
        ("WRITE", "Append", True),
        ("WRITE", "Overwrite", False),
        ("WRITE", None, False),
        ("RESTORE", None, False),
        ("CREATE OR REPLACE TABLE", None, False),
        ("unknown", None, False),
    ],
)
def test_what_can_be_adopted_undoes_no_release(operation, mode, is_adoptable):
    assert TableCommit(1, operation, None, {}, mode=mode).is_adoptable == is_adoptable


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


def test_a_table_that_is_deleted_or_older_than_its_manifest_is_named(table):
    write(table, 0)
    write(table, 1)
    opened(table).require_version(2, release=1)
    for commits in ([], table.commits[:2]):
        with pytest.raises(TableMissing, match=r"mirror/t.*version_in_manifest=2.*--output"):
            opened(DeltaTable(list(commits))).require_version(2, release=1)


def test_a_table_that_is_deleted_while_it_is_used_is_named(table):
    write(table, 0)
    log = opened(table)
    log.require_present()
    table.commits.clear()
    with pytest.raises(TableMissing, match="version=1"):
        log.require_present()
    opened(table).require_present()


def test_a_version_that_delta_has_cleaned_up_is_no_deletion(table):
    found, log = history(table)
    found.add("OPTIMIZE", changes_rows=False)
    cleaned = found.commit
    found.commit = lambda version: None if version == 0 else cleaned(version)
    log.require_present()
    assert log.head == 1


@pytest.fixture
def cleaned(table):
    """An idle table of release 7 in version 1, the log of which begins with version 4."""
    write(table, 7)
    found, log = history(table)
    for _ in range(4):
        found.add("OPTIMIZE", changes_rows=False)
    found.cleaned = 4
    return found, log


@pytest.mark.parametrize("limit", [2, 256, None])
def test_an_idle_table_whose_log_was_cleaned_keeps_its_release(cleaned, limit):
    found, log = cleaned
    log.load(limit=limit)
    # Without a manifest, as with one that names a version which can no longer be read.
    assert (log.version_at(7), log.version_at(40)) == (5, 5)
    log.require_version(1, release=40, stands_at=7)
    assert (log.version_at(7), log.version_at(40)) == (5, 5)
    # A manifest that names a version which is still there.
    log.require_version(4, release=40)
    assert (log.version_at(40), log.version_at(41)) == (4, 4)
    assert log.written(release(7)) is not None
    assert log.written(release(8)) is None
    assert not log.knows_after(7)
    # What it takes next is a commit like any other.
    found.add("MERGE", metadata=release(41).metadata)
    log.follow()
    assert [log.version_at(number) for number in (40, 41, 50)] == [4, 6, 6]
    assert log.written(release(41)).version == 6
    assert log.knows_after(41)
    assert not log.knows_after(7)


def test_a_table_whose_log_was_cleaned_is_still_not_ahead_of_the_checkpoint(cleaned):
    _, log = cleaned
    log.load(limit=2)
    log.refuse_beyond(7)
    with pytest.raises(ConfigError, match="later release"):
        log.refuse_beyond(6)
    assert log.newest_release == 7


def test_a_table_does_not_stand_at_a_release_before_the_one_that_it_holds(cleaned):
    _, log = cleaned
    log.load()
    assert log.find_version(6) is None
    log.require_version(1, release=9, stands_at=6)
    assert log.find_version(6) == 1


def test_commits_that_a_cleaned_log_still_has_are_enough(table):
    for number in (1, 2, 3):
        write(table, number)
    found, log = history(table)
    found.cleaned = 2
    log.load()
    assert [log.find_version(number) for number in (1, 2, 3)] == [None, 2, 3]
    log.require_version(1, release=1)
    assert log.find_version(1) == 1
    assert (log.knows_after(1), log.knows_after(2)) == (False, True)


def test_a_table_of_which_delta_keeps_no_transaction_holds_nothing_known(cleaned):
    found, log = cleaned
    found.numbers = lambda _: {}
    log.load()
    assert log.newest_release == -1
    assert log.written(release(7)) is None
    assert log.version_at(7) == 5


def test_a_copy_of_another_querys_table_is_refused_when_its_commits_are_gone(table):
    write(table, 3, query_id="other")
    write(table, 9, sink="changelog")  # as nobody does
    found = Foreign(table)
    found.cleaned = found.add("OPTIMIZE", changes_rows=False)
    commit = release(3)
    for judge in (
        lambda log: log.refuse_beyond(5),
        lambda log: log.written(commit),
        lambda log: log.find_version(3),
    ):
        log = CommitLog(found, "mirror/t", query_id="q", sink="mirror")
        log.load()
        log.require_version(2, release=3)
        with pytest.raises(ConfigError, match=r"commits of another writer.*query_id='other'"):
            judge(log)
    # With a note of ours, or one that is no query's, the table is ours.
    for numbers in ({"q": 3, "other": 3}, {}):
        found.numbers = lambda _, numbers=numbers: numbers
        log = CommitLog(found, "mirror/t", query_id="q", sink="mirror")
        log.load()
        log.refuse_beyond(5)
