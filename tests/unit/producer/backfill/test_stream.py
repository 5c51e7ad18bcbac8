"""The lineage of a backfill: all rows, then the change stream."""

import pytest

from tests.reading import received
from tidegate.producer.backfill.read_partition import REST, reading_of
from tidegate.producer.backfill.stream import BackfillStream
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionStartRecord,
)
from tidegate.schemas.progress import ChildPartition

T_NS = 1_700_000_000_000_001_500
NEXT_NS = 1_700_000_000_000_002_000
INITIAL = ChildPartitionsRecord(
    NEXT_NS, "1", (ChildPartition("p0", (), NEXT_NS), ChildPartition("p1", (), NEXT_NS))
)


class Answer:
    """A response with given records."""

    size_bytes = 10

    def __init__(self, *records):
        self._records = list(records)

    def decode(self):
        return self._records, 0


class Query:
    """A query with given responses; one that is an error is raised."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.is_cancelled = False

    async def next_size(self):
        if self._answers and isinstance(self._answers[0], Exception):
            raise self._answers[0]
        return 10 if self._answers else None

    async def receive(self):
        return self._answers.pop(0)

    def cancel(self):
        self.is_cancelled = True


class Tables:
    """Tables with so many rows each."""

    def __init__(self, **rows):
        self._rows = rows
        self.read = []
        self.fails = False

    def keys(self, table, ranges, *, read_ns):
        assert read_ns == T_NS
        answers = []
        for key in range(self._rows[table]):
            ranges_of_one = Keys(ranges, key)
            answers.append(ranges_of_one)
        return Query(*answers)

    def rows(self, one, *, read_ns):
        self.read.append(one)
        failure = [QueryInterrupted("gone", code="UNAVAILABLE")] if self.fails else []
        return Query(Answer(row(one, read_ns)), *failure)


class Keys(Answer):
    """A response that adds one key."""

    def __init__(self, ranges, key):
        super().__init__()
        self._ranges, self._key = ranges, key

    def decode(self):
        if self._ranges.rows_to_end() == 1:
            self._ranges.end_at((self._key,))
        else:
            self._ranges.pass_over(1)
        return [], 0


def row(one, read_ns):
    return DataChangeRecord(
        read_ns, "00000000", f"spanner-backfill-{one.number}", True, one.table, (), (), "INSERT",
        "NEW_ROW", 1, 1, "spanner-backfill", False,
    )  # fmt: skip


class Changes:
    """A change stream whose queries are noted."""

    def __init__(self, initial=INITIAL):
        self.asked = []
        self._initial = initial

    def query(self, *, token, start_ns, end_ns, heartbeat_ms):
        self.asked.append((token, start_ns, end_ns, heartbeat_ms))
        return Query(Answer(self._initial))


@pytest.fixture
def read(tasks):
    def read(stream, token, start_ns=T_NS, end_ns=None):
        query = stream.query(token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=100)
        return [record for one in received(query, tasks) for record in one.decode()[0]]

    return read


def lineage(records):
    (found,) = [one for one in records if isinstance(one, ChildPartitionsRecord)]
    assert records[-1] is found
    return found


def test_the_change_stream_begins_when_all_rows_are_read(read):
    changes, tables = Changes(), Tables(a=25_000, b=1, empty=0)
    stream = BackfillStream(changes, tables, tables=["a", "b", "empty"])
    opened = read(stream, "")
    assert set(opened[:-1]) == {HeartbeatRecord(T_NS)}  # it does not look as if it hung
    first = lineage(opened)
    assert [child.parents for child in first.children] == [()] * 4
    assert {child.start_ns for child in first.children} == {first.start_ns} == {T_NS}
    heard = {}
    for child in first.children:
        found = read(stream, child.token)
        assert isinstance(found[0], DataChangeRecord)
        (done,) = lineage(found).children
        assert done.parents == (child.token,)
        (rest,) = lineage(read(stream, done.token, done.start_ns)).children
        heard.setdefault(rest, []).append(done.token)
    ((rest, parents),) = heard.items()
    assert rest == ChildPartition(REST, tuple(parents), NEXT_NS)
    assert [one.rows for one in tables.read] == [10_000, 10_000, 5_000, 1]
    assert changes.asked == []
    then = lineage(read(stream, REST, rest.start_ns))
    assert changes.asked == [("", NEXT_NS, None, 100)]
    assert then == ChildPartitionsRecord(
        NEXT_NS, "1", tuple(ChildPartition(one, (REST,), NEXT_NS) for one in ("p0", "p1"))
    )
    read(stream, "p0", 7, 9)
    assert changes.asked[1:] == [("p0", 7, 9, 100)]


def test_a_read_that_breaks_off_names_no_child(read):
    tables = Tables(a=1)
    stream = BackfillStream(Changes(), tables, tables=["a"])
    (child,) = lineage(read(stream, "")).children
    tables.fails = True
    with pytest.raises(QueryInterrupted):
        read(stream, child.token)


def test_start_records_become_children_of_the_rest(read):
    start = PartitionStartRecord(NEXT_NS, "3", ("p0",))
    stream = BackfillStream(Changes(start), Tables())
    assert read(stream, REST, NEXT_NS) == [
        ChildPartitionsRecord(NEXT_NS, "3", (ChildPartition("p0", (REST,), NEXT_NS),))
    ]


def test_tables_without_a_row_lead_to_the_change_stream_at_once(read):
    stream = BackfillStream(Changes(), Tables(empty=0), tables=["empty"])
    assert read(stream, "") == [
        ChildPartitionsRecord(NEXT_NS, "0", (ChildPartition(REST, (), NEXT_NS),))
    ]


def test_without_a_backfill_the_change_stream_answers(read):
    changes = Changes()
    assert read(BackfillStream(changes, Tables()), "") == [INITIAL]
    assert changes.asked == [("", T_NS, None, 100)]


def test_a_worker_that_knows_no_tables_reads_on(read):
    """The setting matters to the worker that opens the stream alone."""
    tables = Tables(a=3)
    (child,) = lineage(read(BackfillStream(Changes(), tables, tables=["a"]), "")).children
    found = read(BackfillStream(Changes(), tables), child.token)
    assert found[0].server_transaction_id == "spanner-backfill-0"
    assert reading_of(child.token).rows == 3


@pytest.mark.parametrize("token", ["", "tidegate-backfill/done/0/1", REST])
def test_a_cancelled_query_ends(tasks, token):
    stream = BackfillStream(Changes(), Tables(a=2), tables=["a"])
    query = stream.query(token=token, start_ns=T_NS, end_ns=None, heartbeat_ms=100)
    query.cancel()
    if token.startswith("tidegate-backfill/done"):
        assert list(received(query, tasks)) == []
