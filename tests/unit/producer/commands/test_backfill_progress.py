"""A backfill is as far as its rows are published, and done when nothing of it is open."""

from dataclasses import replace

from tests.unit.producer.commands.test_environment import started
from tidegate.producer.backfill.read_partition import REST, ReadPartition, done_token, read_token
from tidegate.producer.backfill.table_run import RunPlace, wait_token
from tidegate.producer.commands.backfill_progress import BackfillProgress, backfill_progress
from tidegate.schemas.progress import ChildPartition

PARTS = [ReadPartition("t", number, 2, 30, None, None) for number in range(2)]
STARTED = replace(
    started("s").body, children=tuple(ChildPartition(read_token(one), (), 0) for one in PARTS)
)


def progress(*tokens, changes=15, rate=None):
    return backfill_progress(STARTED, tokens, changes=changes, rate=rate)


def test_rows_are_those_of_all_ranges():
    assert progress(read_token(PARTS[0])) == BackfillProgress(60, 15)
    assert progress(read_token(PARTS[1]), changes=30, rate=10.0) == BackfillProgress(60, 30, 3.0)
    assert progress(read_token(PARTS[1]), rate=0.0) == BackfillProgress(60, 15)


def test_it_goes_on_until_the_change_stream_has_begun():
    assert progress(done_token(PARTS[0]), changes=60, rate=5.0) == BackfillProgress(60, 60, 0.0)
    assert progress(REST, changes=60) == BackfillProgress(60, 60)
    assert progress("token", changes=61) is None
    assert progress(wait_token(RunPlace(1, "t")), changes=61) is None  # a backfill on demand
    assert backfill_progress(started("s").body, ["p"], changes=3, rate=1.0) is None
