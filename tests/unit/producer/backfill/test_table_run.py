"""A backfill on demand: requests, of which the newest of each table holds, and a run's tokens."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.backfill.test_stream import KEYS, coded
from tidegate.producer.backfill.read_partition import REST, is_of_backfill, reading_of
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunChunk, RunWait, place_of
from tidegate.schemas.errors import SchemaError

REQUEST = TableRequest("Sales.Items", 3, "token", 1_700_000_000_000_000, by="ada", at_us=5)
PLACES = st.builds(
    RunWait,
    run=st.integers(1, 10**6), table=st.text(min_size=1), number=st.integers(0, 10**6),
    after=KEYS, due_ns=st.integers(0, 1 << 62), refusals=st.integers(0, 99),
    where=st.text(max_size=9), failure=st.text(max_size=9),
    held_ns=st.integers(0, 1 << 62), since_ns=st.integers(0, 1 << 62), is_boosted=st.booleans(),
)  # fmt: skip


def test_a_record_holds_a_request():
    stopped = TableRequest("t", 4, "p", 9, RunState.STOPPED, 100, 50, where="Id > 7 -- 'ä'")
    boosted = replace(REQUEST, data_boost=True)
    for one in (REQUEST, stopped, boosted):
        assert TableRequest.decode(one.encode()) == one
    content = json.loads(REQUEST.encode())
    assert TableRequest.decode(json.dumps({**content, "columns": "Id"}).encode()) == REQUEST
    del content["where"], content["data_boost"]  # a record of before they existed
    assert TableRequest.decode(json.dumps(content).encode()) == REQUEST


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"7", b"{}", b'{"table": "t"}',
        b'{"table": 7, "run": 1, "parent": "p", "start_us": 1}',
        b'{"table": "t", "run": 0, "parent": "p", "start_us": 1}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "share": 0}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "state": "x"}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "where": 7}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "data_boost": 7}',
        b'{"table": "t", "run": true, "parent": "p", "start_us": 1}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "by": 7}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "at_us": "x"}',
        # No record of the progress topic could hold its time in nanoseconds.
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 9223372036854776}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_another_record_is_refused(value):
    with pytest.raises(SchemaError, match="no request for a backfill"):
        TableRequest.decode(value)


@pytest.mark.parametrize(("share", "pause"), [(20, 400), (50, 100), (99, 1), (1, 9_900)])
def test_a_chunk_is_followed_by_its_share_of_time(share, pause):
    assert TableRequest("t", 1, "p", 1, share=share).pause_ns(100) == pause


def test_the_newest_run_of_a_table_holds():
    requests = TableRequests([REQUEST])
    stopped = TableRequest("Sales.Items", 3, "token", 1, RunState.STOPPED)
    other = TableRequest("t", 4, "token", 2)
    for one in (stopped, other, TableRequest("Sales.Items", 2, "older", 1)):
        requests.add(one)
    assert requests.newest("Sales.Items") is stopped
    assert requests.newest("x") is None
    assert requests.announced_by("token") == (stopped, other)
    assert requests.announced_by("older") == ()
    assert requests.all == [stopped, other]


@given(PLACES, st.integers(1, 1 << 62), st.integers(1, 20_000))
def test_a_token_says_where_its_run_is(place, read_ns, rows):
    wait, chunk = place.token, place.chunk(read_ns, rows=rows).token
    assert place_of(wait) == place
    assert place_of(chunk) == place.chunk(read_ns, rows=rows)
    assert [type(place_of(one)) for one in (wait, chunk)] == [RunWait, RunChunk]
    for token in (wait, chunk):
        assert token.isascii()
        assert is_of_backfill(token)
        assert reading_of(token) is None


@pytest.mark.parametrize(
    ("due_ns", "now_ns", "pause_from_ns", "held_ns"),
    [(0, 80, 80, 30), (95, 80, 95, 30), (0, 40, 40, 0)],
    ids=["a chunk", "a refused chunk", "a clock that is behind"],
)
def test_a_wait_measures_how_long_the_watermark_was_held(due_ns, now_ns, pause_from_ns, held_ns):
    place = RunWait(3, "t", 8, ("a",), due_ns=due_ns, since_ns=50)
    measured = RunWait(3, "t", 8, ("a",), due_ns=pause_from_ns, held_ns=held_ns)
    assert place.measured(now_ns) == measured


def test_data_boost_reads_a_whole_run():
    (token,) = replace(REQUEST, data_boost=True).start.tokens
    chunk = place_of(place_of(token).chunk(50, rows=10).token)
    followers = [chunk, chunk.next(("b",)).measured(70), chunk.again(due_ns=60)]
    assert [place_of(follower.token).is_boosted for follower in followers] == [True] * 3
    (token,) = REQUEST.start.tokens
    assert not place_of(token).is_boosted


@pytest.mark.parametrize("wait", [RunWait(3, "t", where="w"), RunWait(3, "t", 7, (1,), where="w")])
def test_the_condition_holds_for_the_whole_run(wait):
    """Each stream partition of a run has only its own token to read it from."""
    chunk = place_of(wait.chunk(50, rows=10).token)
    followers = [chunk.next(("b",)), chunk.again(due_ns=60), chunk.failed("why")]
    assert chunk.where == "w"
    assert [place_of(follower.token).where for follower in followers] == ["w"] * 3
    assert followers[2] == RunWait(3, "t", wait.number + 1, wait.after, where="w", failure="why")


def test_a_token_of_a_run_without_a_condition_is_as_short_as_ever():
    token = RunWait(3, "t", 7, ("a",), due_ns=60).token
    assert token == "tidegate-backfill/table/3/7/wait/WyJ0IixbImEiXSwwLDYwXQ"


def test_tokens_of_other_stream_partitions_are_of_no_run_and_damaged_ones_refused():
    for token in ("", "AbC-_=", REST, "tidegate-backfill/done/0/1"):
        assert place_of(token) is None
    for text in ("A", "W10", "bm90IGpzb24", "_w"):
        with pytest.raises(SchemaError, match="the token of a backfill cannot be read"):
            place_of(f"tidegate-backfill/table/1/0/wait/{text}")
    # A chunk without its number of rows; then tokens with a value of another kind.
    with pytest.raises(SchemaError, match="the token of a backfill cannot be read"):
        place_of("tidegate-backfill/table/3/7/chunk/WyJ0IixbImEiXSwwLDYwXQ")
    for content in (
        7, [7, None, 0, 60], ["t", 7, 0, 60], ["t", "a", 0, 60], ["t", [["a"]], 0, 60],
        ["t", None, "0", 60], ["t", None, -1, 60], ["t", None, 0, "60"], ["t", None, 0, True],
        ["t", None, 0, 60, {"where": 7}], ["t", None, 0, 60, {"failure": 7}],
        ["t", None, 0, 60, {"held": "1"}], ["t", None, 0, 60, {"since": None}],
    ):  # fmt: skip
        with pytest.raises(SchemaError, match="the token of a backfill cannot be read"):
            place_of(f"tidegate-backfill/table/3/7/wait/{coded(content)}")
    for content in (["t", None, 0, 60, "9"], ["t", None, 0, 60, 0], ["t", None, 0, 60, {}]):
        with pytest.raises(SchemaError, match="the token of a backfill cannot be read"):
            place_of(f"tidegate-backfill/table/3/7/chunk/{coded(content)}")
    with pytest.raises(SchemaError, match="the token of a backfill cannot be read"):
        place_of(f"tidegate-backfill/table/{'9' * 5_000}/7/wait/WyJ0IixbImEiXSwwLDYwXQ")
    with pytest.raises(SchemaError, match="the token of a backfill cannot be read"):
        place_of(f"tidegate-backfill/table/3/7/wait/{coded('[' * 100_000)}")
