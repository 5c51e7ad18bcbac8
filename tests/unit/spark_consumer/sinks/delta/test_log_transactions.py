"""Which files of a log have a table's state; their content is read in the tests with Spark."""

import pytest

from tidegate.spark_consumer.sinks.delta.log_transactions import state_files

UNIQUE = "80a083e8-7026-4e79-81be-64bd76c43a11"


def commit(version):
    return f"{version:020d}.json"


def checkpoint(version, rest="parquet"):
    return f"{version:020d}.checkpoint.{rest}"


def parts(version, count):
    return [checkpoint(version, f"{n + 1:010d}.{count:010d}.parquet") for n in range(count)]


COMMITS = [commit(version) for version in range(12)]


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
        # Nothing of these is the state.
        (
            [
                f"{5:020d}.{9:020d}.compacted.json",
                f"{11:020d}.crc",
                f"{11:020d}.{UNIQUE}.json",
                f"{11:020d}.json.tmp",
                "last.parquet",
            ],
            COMMITS,
        ),
    ],
)
def test_the_state_is_the_newest_whole_checkpoint_and_the_commits_after_it(further, expected):
    for names in (sorted([*COMMITS, *further]), [*reversed(further), *reversed(COMMITS)]):
        assert state_files(names) == expected


def test_a_log_whose_old_commits_are_gone_begins_with_its_checkpoint():
    assert state_files([checkpoint(9), *COMMITS[9:]]) == [checkpoint(9), *COMMITS[10:]]
    assert state_files([]) == []
