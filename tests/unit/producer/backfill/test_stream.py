"""A backfill before the stream: its key ranges, its tokens, all rows, then the change stream."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading import received
from tests.unit.producer.backfill.conftest import T_NS, Answer, Query, change, key_ranges
from tidegate.producer.backfill.read_partition import (
    REST,
    ReadPartition,
    done_token,
    done_tokens,
    is_of_backfill,
    parents_of_rest,
    read_token,
    reading_of,
)
from tidegate.producer.backfill.stream import BackfillStream
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionStartRecord,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import ChildPartition

VALUES = st.one_of(
    st.none(), st.booleans(), st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False)
)
KEYS = st.none() | st.lists(VALUES, min_size=1, max_size=4).map(tuple)
SIZES = {"ranges_max": st.integers(1, 9), "rows_min": st.integers(1, 9)}


@given(rows=st.integers(0, 500), **SIZES)
def test_each_row_is_in_one_range(rows, ranges_max, rows_min):
    ranges = key_ranges(rows, ranges_max=ranges_max, rows_min=rows_min)
    ends = [0]
    for after, through, count in ranges.bounds:
        assert after == ((ends[-1],) if ends[-1] else None)
        ends.append(ends[-1] + count)
        assert through == (None if ends[-1] == rows else (ends[-1],))
    assert ends[-1] == ranges.rows == rows
    assert len(ranges.bounds) <= ranges_max + 1
    # They are as small as may be.
    counts = [count for *_, count in ranges.bounds] or [rows_min]
    assert len(set(counts[:-1])) <= 1
    assert counts[-1] <= counts[0]
    assert len(counts) == 1 or len(counts) > ranges_max // 2 or counts[0] == rows_min


@given(
    st.builds(
        ReadPartition,
        table=st.text(min_size=1), number=st.integers(0, 299), of=st.just(300),
        rows=st.integers(1, 10**12), after=KEYS, through=KEYS,
    )
)  # fmt: skip
def test_a_token_says_what_is_read(one):
    token = read_token(one)
    assert reading_of(token) == one
    assert token.isascii()
    assert is_of_backfill(token)
    assert parents_of_rest(token) is None


def coded(content):
    """Return the last part of a token; a text is taken as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_each_read_partition_leads_to_the_rest():
    tokens = [done_token(ReadPartition("t", number, 3, 10, None, None)) for number in range(3)]
    assert tokens == list(done_tokens(3))
    assert [parents_of_rest(token) for token in tokens] == [tuple(tokens)] * 3
    assert [reading_of(token) for token in (*tokens, REST, "", "AbC-_=")] == [None] * 6
    assert parents_of_rest(REST) is None
    assert (is_of_backfill(REST), is_of_backfill("AbC-_=")) == (True, False)


@pytest.mark.parametrize("text", ["A", "W10", "bm90IGpzb24", "_w"])
def test_a_damaged_token_is_refused_by_name(text):
    with pytest.raises(SchemaError, match="the token of a read partition cannot be read"):
        reading_of(f"tidegate-backfill/read/0/1/{text}")


@pytest.mark.parametrize(
    "content",
    [
        7, None, [7, 9, None, None], ["", 9, None, None], ["t", "9", None, None],
        ["t", True, None, None], ["t", 0, None, None], ["t", 9, 7, None], ["t", 9, None, "ab"],
        ["t", 9, [["a"]], None], ["t", 9, {"a": 1}, None], "[" * 100_000,
    ],
)  # fmt: skip
def test_a_token_with_a_value_of_another_kind_is_refused_by_name(content):
    with pytest.raises(SchemaError, match="the token of a read partition cannot be read"):
        reading_of(f"tidegate-backfill/read/0/1/{coded(content)}")


@pytest.mark.parametrize("numbers", ["1/1", f"0/{'9' * 5_000}"])
def test_a_token_with_impossible_numbers_is_refused_by_name(numbers):
    with pytest.raises(SchemaError, match="the token of a read partition cannot be read"):
        reading_of(f"tidegate-backfill/read/{numbers}/{coded(['t', 9, None, None])}")


NEXT_NS = 1_700_000_000_000_002_000
INITIAL = ChildPartitionsRecord(
    NEXT_NS, "1", (ChildPartition("p0", (), NEXT_NS), ChildPartition("p1", (), NEXT_NS))
)


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


class Tables:
    """Tables, each with a number of rows."""

    def __init__(self, **rows):
        self._rows = rows
        self.read = []
        self.fails = False

    def keys(self, table, ranges, *, read_ns):
        assert read_ns == T_NS
        return Query(*(Keys(ranges, key) for key in range(self._rows[table])))

    def rows(self, one, *, read_ns):
        self.read.append(one)
        failure = [QueryInterrupted("gone", code="UNAVAILABLE")] if self.fails else []
        return Query(Answer(change(read_ns, table=one.table, number=one.number)), *failure)


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
    (found,) = [record for record in records if isinstance(record, ChildPartitionsRecord)]
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
    tables = Tables(a=3)
    stream = BackfillStream(Changes(), tables, tables=["a"])
    (child,) = lineage(read(stream, "")).children
    assert reading_of(child.token).rows == 3
    tables.fails = True
    with pytest.raises(QueryInterrupted):
        read(stream, child.token)
    # A worker that knows no tables reads on: only the one that opens the stream needs them.
    tables.fails = False
    found = read(BackfillStream(Changes(), tables), child.token)
    assert found[0].server_transaction_id == "spanner-backfill-0"


def test_start_records_become_children_of_the_rest(read):
    stream = BackfillStream(Changes(PartitionStartRecord(NEXT_NS, "3", ("p0",))), Tables())
    assert read(stream, REST, NEXT_NS) == [
        ChildPartitionsRecord(NEXT_NS, "3", (ChildPartition("p0", (REST,), NEXT_NS),))
    ]


def test_without_a_row_or_a_backfill_the_change_stream_begins_at_once(read):
    stream = BackfillStream(Changes(), Tables(empty=0), tables=["empty"])
    rest = ChildPartition(REST, (), NEXT_NS)
    assert read(stream, "") == [ChildPartitionsRecord(NEXT_NS, "0", (rest,))]
    changes = Changes()
    assert read(BackfillStream(changes, Tables()), "") == [INITIAL]
    assert changes.asked == [("", T_NS, None, 100)]


@pytest.mark.parametrize("token", ["", "tidegate-backfill/done/0/1", REST])
def test_a_cancelled_query_ends(tasks, token):
    stream = BackfillStream(Changes(), Tables(a=2), tables=["a"])
    query = stream.query(token=token, start_ns=T_NS, end_ns=None, heartbeat_ms=100)
    query.cancel()
    if token.startswith("tidegate-backfill/done"):
        assert list(received(query, tasks)) == []
