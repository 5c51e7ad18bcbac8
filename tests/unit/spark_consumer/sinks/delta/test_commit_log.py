"""Which version of a table carries which release, over tables and logs in memory."""

from __future__ import annotations

import json

import pytest

from tests.simulation.delta import DeltaCommit, DeltaTable
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.delta import commit_log
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog, TableCommit
from tidegate.spark_consumer.sinks.delta.log_files import parse_commit, state_files
from tidegate.spark_consumer.sinks.tables import Commit


def release(number, *, query_id="q", sink="mirror", through_us=None):
    return Commit(query_id, sink, number, number * 10 if through_us is None else through_us)


@pytest.fixture
def table():
    delta_table = DeltaTable()
    delta_table.create(["a"], release(0).preparation, None)
    return delta_table


def write(table, number, **of):
    commit = release(number, **of)
    table.commits.append(
        DeltaCommit("MERGE", commit.metadata, ("a",), transaction=(commit.application, number))
    )


def opened(table):
    log = CommitLog(table, "mirror/t", query_id="q", sink="mirror")
    log.load()
    return log


def test_each_release_has_the_version_of_its_own_commit(table):
    log = opened(table)
    assert log.written(release(0)) is None  # a preparation is not a release
    write(table, 0)
    assert log.written(release(0)) is None
    log.follow()
    assert log.written(release(0)).version == 1
    table.maintain()
    write(table, 2)
    log = opened(table)
    assert [log.version_at(number) for number in (0, 1, 2, 3)] == [1, 1, 3, 3]
    assert [log.written(release(n)) is not None for n in range(3)] == [True, False, True]
    younger = DeltaTable()
    younger.create(["a"], release(3).preparation, None)
    log = opened(younger)
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
    assert [carrier.release for carrier in log.carriers(after=0, through=5)] == [1, 2, 5]
    assert [carrier.release for carrier in log.carriers(after=1, through=4)] == [2]
    assert log.carriers(after=5, through=9) == ()


def test_a_table_of_another_writer_or_with_other_releases_is_refused(table):
    for foreign in ({"query_id": "other"}, {"sink": "changelog"}):
        other = DeltaTable(list(table.commits))
        write(other, 1, **foreign)
        with pytest.raises(ConfigError, match="another writer"):
            opened(other)
    write(table, 4)
    log = opened(table)
    log.refuse_beyond(4)
    with pytest.raises(ConfigError, match="later release"):
        log.refuse_beyond(3)
    with pytest.raises(ConfigError, match="other bounds"):
        log.written(release(4, through_us=41))
    write(table, 3)
    with pytest.raises(InvariantViolation):
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
    foreign = Foreign(table)
    log = CommitLog(foreign, "mirror/t", query_id="q", sink="mirror")
    log.load()
    return foreign, log


NOT_OURS = [None, "not JSON", "[]", json.dumps({"tidegate": 1})]


@pytest.mark.parametrize("metadata", NOT_OURS)
def test_commits_of_others_are_passed_over_unless_they_change_rows(table, metadata):
    write(table, 0)
    foreign, log = history(table)
    for operation in ("OPTIMIZE", "CHANGE COLUMN", "CLUSTER BY", "ADD CONSTRAINT", "anything"):
        foreign.add(operation, metadata=metadata, changes_rows=False)
    log.follow()
    log.load()
    assert (log.head, log.version_at(3)) == (6, 1)
    foreign.add("DELETE", metadata=metadata)
    for look in (log.follow, log.load, log.require_own):
        with pytest.raises(ForeignChange, match=r"operation='DELETE'.*tidegate-consumer adopt"):
            look()


def test_adopted_changes_are_passed_over_and_later_ones_are_not(table):
    write(table, 0)
    foreign, log = history(table)
    version = foreign.add("DELETE")
    foreign.add("SET TBLPROPERTIES", metadata=Commit.adoption("q", "mirror", version=version))
    log.follow()
    log.load()
    assert log.version_at(0) == 1
    foreign.add("UPDATE")
    with pytest.raises(ForeignChange, match="operation='UPDATE'"):
        log.load()
    # An adoption of another sink counts for nothing.
    foreign, log = history(table)
    version = foreign.add("DELETE")
    foreign.add("SET TBLPROPERTIES", metadata=Commit.adoption("q", "changelog", version=version))
    with pytest.raises(ConfigError, match="another writer"):
        log.load()


def test_what_can_be_adopted_undoes_no_release(table):
    for operation, mode, is_adoptable in (
        *((operation, None, True) for operation in ("DELETE", "UPDATE", "MERGE", "TRUNCATE")),
        ("WRITE", "Append", True),
        ("WRITE", "Overwrite", False),
        ("WRITE", None, False),
        *(
            (operation, None, False)
            for operation in ("RESTORE", "CREATE OR REPLACE TABLE", "unknown")
        ),
    ):
        assert TableCommit(1, operation, None, {}, mode=mode).is_adoptable == is_adoptable
    # What may undo releases is refused even without rows.
    for operation in ("RESTORE", "CREATE OR REPLACE TABLE", "CLONE"):
        foreign, log = history(table)
        foreign.add(operation, changes_rows=False)
        with pytest.raises(ForeignChange, match="restore the checkpoint") as raised:
            log.load()
        assert "adopt" not in str(raised.value)


def test_a_table_that_is_deleted_or_older_than_its_manifest_is_named(table):
    write(table, 0)
    write(table, 1)
    log = opened(table)
    log.require_version(2, release=1)
    log.require_present()
    for commits in ([], table.commits[:2]):
        with pytest.raises(TableMissing, match=r"mirror/t.*version_in_manifest=2.*--output"):
            opened(DeltaTable(list(commits))).require_version(2, release=1)
    table.commits.clear()
    with pytest.raises(TableMissing, match="version=2"):
        log.require_present()
    opened(table).require_present()


def test_a_version_that_delta_has_cleaned_up_is_no_deletion(table):
    foreign, log = history(table)
    foreign.add("OPTIMIZE", changes_rows=False)
    foreign.cleaned = 1
    log.require_present()
    assert log.head == 1


@pytest.fixture
def cleaned(table):
    """An idle table of release 7 in version 1, the log of which begins with version 4."""
    write(table, 7)
    foreign, log = history(table)
    for _ in range(4):
        foreign.add("OPTIMIZE", changes_rows=False)
    foreign.cleaned = 4
    return foreign, log


@pytest.mark.parametrize("limit", [2, 256, None])
def test_an_idle_table_whose_log_was_cleaned_keeps_its_release(cleaned, limit):
    foreign, log = cleaned
    log.load(limit=limit)
    log.refuse_beyond(7)
    with pytest.raises(ConfigError, match="later release"):
        log.refuse_beyond(6)
    assert log.newest_release == 7
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
    foreign.add("MERGE", metadata=release(41).metadata)
    log.follow()
    assert [log.version_at(number) for number in (40, 41, 50)] == [4, 6, 6]
    assert log.written(release(41)).version == 6
    assert [log.knows_after(number) for number in (7, 41)] == [False, True]


def test_a_table_does_not_stand_at_a_release_before_the_one_that_it_holds(cleaned):
    foreign, log = cleaned
    log.load()
    assert log.find_version(6) is None
    log.require_version(1, release=9, stands_at=6)
    assert log.find_version(6) == 1
    # Without a note of Delta's nothing is known of what the table holds.
    foreign.numbers = lambda _: {}
    log.load()
    assert (log.newest_release, log.written(release(7)), log.version_at(7)) == (-1, None, 5)


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


# ---------------------------------------------------------------- files of a log
def lines(*actions):
    return "\n".join(json.dumps(action) for action in actions).encode()


def test_a_commit_changes_rows_if_one_of_its_files_does():
    moved = {"add": {"path": "x", "dataChange": False}}, {"remove": {"dataChange": False}}
    info = {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}}}
    metadata = {"metaData": {"id": "t"}}, {"protocol": {"minWriterVersion": 3}}
    assert not parse_commit(7, lines(info, *metadata, *moved)).changes_rows
    assert parse_commit(7, lines(info, *moved, {"add": {"dataChange": True}})).changes_rows
    assert parse_commit(7, lines({"remove": {"path": "x"}})).changes_rows
    assert parse_commit(7, lines(info)).mode == "Append"


UNIQUE = "80a083e8-7026-4e79-81be-64bd76c43a11"


def commit_file(version):
    return f"{version:020d}.json"


def checkpoint(version, rest="parquet"):
    return f"{version:020d}.checkpoint.{rest}"


def parts(version, count):
    return [checkpoint(version, f"{n + 1:010d}.{count:010d}.parquet") for n in range(count)]


COMMITS = [commit_file(version) for version in range(12)]
# None of these is the state.
OTHERS = [
    f"{5:020d}.{9:020d}.compacted.json", f"{11:020d}.crc", f"{11:020d}.{UNIQUE}.json",
    f"{11:020d}.json.tmp", "last.parquet",
]  # fmt: skip


@pytest.mark.parametrize(
    ("further", "expected"),
    [
        ([], COMMITS),
        ([checkpoint(9)], [checkpoint(9), *COMMITS[10:]]),
        ([checkpoint(3), checkpoint(11)], [checkpoint(11)]),
        (parts(10, 3), [*parts(10, 3), COMMITS[11]]),
        # A part is missing still, or a former writer has left one.
        ([checkpoint(9), *parts(10, 3)[1:]], [checkpoint(9), *COMMITS[10:]]),
        ([*parts(10, 2), *parts(10, 3)[1:]], [*parts(10, 2), COMMITS[11]]),
        ([checkpoint(10, f"{UNIQUE}.json")], [checkpoint(10, f"{UNIQUE}.json"), COMMITS[11]]),
        ([checkpoint(10, f"{UNIQUE}.parquet")], [checkpoint(10, f"{UNIQUE}.parquet"), COMMITS[11]]),
        (OTHERS, COMMITS),
    ],
)
def test_the_state_is_the_newest_whole_checkpoint_and_the_commits_after_it(further, expected):
    for names in (sorted([*COMMITS, *further]), [*reversed(further), *reversed(COMMITS)]):
        assert state_files(names) == expected
    # A log whose old commits are gone begins with its checkpoint.
    assert state_files([checkpoint(9), *COMMITS[9:]]) == [checkpoint(9), *COMMITS[10:]]
    assert state_files([]) == []
