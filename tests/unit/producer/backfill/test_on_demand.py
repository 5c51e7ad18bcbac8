"""A table is read in chunks next to the stream: where a run begins, what follows what, and when."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading import received
from tests.unit.producer.backfill.conftest import Answer, Query, change
from tidegate.producer.backfill.chunk_query import SILENT_MAX_S, LongRead
from tidegate.producer.backfill.on_demand import OnDemandStream
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunWait, place_of
from tidegate.producer.errors import ConditionRefused, QueryInterrupted, QueryRefused
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionStartRecord,
)
from tidegate.schemas.progress import ChildPartition

T_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
REQUEST = TableRequest("t", 7, "p", (T_NS + 5_000) // 1_000, chunk_rows=3, share=20)
CHUNK = RunWait(7, "t", 2, ("k",)).chunk(T_NS, rows=3)
WITH = RunWait(7, "t", 2, ("k",), where="a > 7").chunk(T_NS, rows=3)
BEGIN = RunWait(7, "t").token


class Changes:
    """A change stream whose queries return these responses."""

    def __init__(self, *responses):
        self.responses = responses

    def query(self, **_asked):
        return Query(*(Answer(*records) for records in self.responses))


class Rows(Query):
    """A chunk: a row in each response, and what is left."""

    def __init__(self, *answers, rest=(), after=("z",)):
        super().__init__(*answers)
        self._rest, self._after = list(rest), after

    def rest(self):
        return self._rest, self._after


class Silent(Rows):
    """A chunk that finds nothing before `found` is set."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.found = asyncio.Event()

    async def next_size(self):
        await self.found.wait()
        return await super().next_size()


class World:
    """Time that passes during sleeps; chunks as they are put in."""

    def __init__(self, tasks):
        self.tasks = tasks
        self.now_ns = T_NS + SECOND
        self.requests = TableRequests([REQUEST])
        self.chunks = []
        self.changes = Changes()
        self.on_sleep = []
        self.sleep_s = None
        """How long each sleep lasts, whatever is asked for; so that long pauses take few steps."""

    async def sleep(self, seconds):
        for _ in range(5):
            await asyncio.sleep(0)  # what is ready by now comes first
        self.now_ns += int((self.sleep_s or seconds) * SECOND)
        if self.on_sleep:
            self.on_sleep.pop(0)()

    def after_sleeps(self, count, action):
        self.on_sleep = [lambda: None] * count + [action]

    async def chunk(self, place):
        self.now_ns += SECOND
        return self.chunks.pop(0)

    def query(self, token, start_ns=T_NS):
        stream = OnDemandStream(
            self.changes, self, self.requests, now_ns=lambda: self.now_ns, sleep=self.sleep
        )
        return stream.query(token=token, start_ns=start_ns, end_ns=None, heartbeat_ms=1_000)

    def read(self, token, start_ns=T_NS):
        responses = received(self.query(token, start_ns), self.tasks)
        return [record for response in responses for record in response.decode()[0]]

    def read_chunk(self, *chunks, place=CHUNK):
        self.chunks = list(chunks)
        return self.read(place.token)


@pytest.fixture
def world(tasks):
    return World(tasks)


def place_after(record):
    (child,) = record.children
    return place_of(child.token)


START = PartitionStartRecord(T_NS + 5_000, "00000007", (BEGIN,))


def test_a_run_is_announced_before_the_first_record_of_a_later_time(world):
    world.changes.responses = (
        [change(T_NS), HeartbeatRecord(T_NS + 4_000)],
        [change(T_NS + 5_000), HeartbeatRecord(T_NS + 5_000), change(T_NS + 6_000)],
        [HeartbeatRecord(T_NS + 9_000)],
    )
    assert world.read("p") == [
        change(T_NS), HeartbeatRecord(T_NS + 4_000), change(T_NS + 5_000),
        HeartbeatRecord(T_NS + 5_000), START, change(T_NS + 6_000), HeartbeatRecord(T_NS + 9_000),
    ]  # fmt: skip
    for other in ("q", "", "tidegate-backfill/rest"):
        assert START not in world.read(other)


def test_runs_of_two_tables_with_one_number_are_both_announced(world):
    """Two commands that read the requests at the same time choose the same number."""
    other = TableRequest("u", 7, "p", REQUEST.start_us + 2, chunk_rows=3, share=20)
    world.requests.add(other)
    times = [HeartbeatRecord(T_NS + at * 1_000) for at in (6, 9)]
    world.changes.responses = ([times[0]], [times[1]])
    assert world.read("p") == [START, times[0], other.start, times[1]]


TIMES = st.lists(st.integers(0, 12), min_size=1, max_size=12).map(sorted)


@given(times=TIMES, cuts=st.sets(st.integers(0, 12)), begin=st.integers(0, 12))
def test_however_often_it_is_read_a_run_begins_at_one_place(tasks, times, cuts, begin):
    """A query that begins later returns what one from the beginning returns from there on."""
    world = World(tasks)
    records = [HeartbeatRecord(T_NS + at * 1_000) for at in times]

    def read(from_us):
        start_ns = T_NS + from_us * 1_000
        kept = [record for record in records if record.timestamp_ns >= start_ns]
        bounds = [0, *sorted(cut for cut in cuts if cut < len(kept)), len(kept)]
        world.changes.responses = [kept[a:b] for a, b in itertools.pairwise(bounds)]
        return world.read("p", start_ns)

    whole, later = read(0), read(begin)
    assert [record for record in later if record != START] == [
        record
        for record in whole
        if record != START and record.timestamp_ns >= T_NS + begin * 1_000
    ]
    assert (START in whole) == (times[-1] > 5)
    assert (START in later) == (times[-1] > 5 >= begin)
    if START in later:
        place = later.index(START)
        assert all(record.timestamp_ns <= START.start_ns for record in later[:place])
        assert all(record.timestamp_ns > START.start_ns for record in later[place + 1 :])


def test_a_chunk_is_read_at_the_present_time_once_it_is_due(world):
    place = RunWait(7, "t", 2, ("k",), due_ns=T_NS + 4 * SECOND, where="a > 7")
    *alive, last = world.read(place.token)
    (child,) = last.children
    assert [type(record) for record in alive] == [HeartbeatRecord] * 3  # once a second
    assert child.start_ns >= place.due_ns
    assert all(record.timestamp_ns <= child.start_ns for record in alive)
    assert place_of(child.token) == place.chunk(child.start_ns, rows=3)
    assert (child.parents, last.start_ns) == ((place.token,), child.start_ns)


def test_a_run_that_is_stopped_or_not_known_yet_reads_nothing_until_it_goes_on(world):
    world.requests.add(replace(REQUEST, state=RunState.STOPPED))
    resumed = TableRequest("t", 7, "p", 1, chunk_rows=5)
    world.after_sleeps(30, lambda: world.requests.add(resumed))
    *alive, last = world.read(BEGIN)
    assert len(alive) > 5
    assert place_after(last).rows == 5

    world.requests = TableRequests()
    world.after_sleeps(10, lambda: world.requests.add(REQUEST))
    *alive, last = world.read(BEGIN)
    assert alive
    assert isinstance(last, ChildPartitionsRecord)


@pytest.mark.parametrize(
    "request_",
    [TableRequest("t", 7, "p", 1, RunState.CANCELLED), TableRequest("t", 8, "p", 1)],
    ids=["cancelled", "a later run"],
)
def test_a_run_that_is_over_ends(world, request_):
    world.requests.add(request_)
    assert world.read(BEGIN) == [PartitionEndRecord(world.now_ns, "0")]
    assert world.read_chunk() == [PartitionEndRecord(T_NS + 1_000, "0")]


def test_a_cancelled_query_ends(world):
    world.requests = TableRequests()
    query = world.query(BEGIN)
    world.on_sleep = [query.cancel]
    assert len(list(received(query, world.tasks))) == 1
    # That of a chunk names nothing.
    world.requests, world.chunks = TableRequests([REQUEST]), [Rows()]
    query = world.query(CHUNK.token)
    query.cancel()
    assert list(received(query, world.tasks)) == []


MEASURING = RunWait(7, "t", 3, ("z",), since_ns=T_NS)


def test_a_wait_behind_a_chunk_measures_and_ends(world):
    """It begins when the chunk's marker is committed, five seconds after the time of the rows."""
    world.now_ns = T_NS + 5 * SECOND
    (last,) = world.read(MEASURING.token, T_NS + 2 * SECOND)
    (child,) = last.children
    assert place_of(child.token) == MEASURING.measured(world.now_ns)
    assert child == ChildPartition(child.token, (MEASURING.token,), world.now_ns)


def test_the_pause_goes_by_the_share_that_is_asked_for_now(world):
    """Without a request it cannot be over; its place holds through any number of workers."""
    paused = MEASURING.measured(world.now_ns)
    world.requests = TableRequests()
    world.after_sleeps(40, lambda: world.requests.add(replace(REQUEST, share=10)))
    (*_, last) = world.read(paused.token, world.now_ns)
    assert last.start_ns == T_NS + 10 * SECOND
    assert place_after(last) == paused.chunk(last.start_ns, rows=3)


def test_a_pause_that_has_begun_goes_by_the_share_of_the_newest_request(world):
    """An outage in the middle of a chunk counts, and nobody wants to wait four times as long."""
    begun_ns = world.now_ns
    world.sleep_s = 60.0
    world.after_sleeps(9, lambda: world.requests.add(replace(REQUEST, share=99)))
    place = RunWait(7, "t", 2, ("k",), due_ns=begun_ns, held_ns=8 * 3_600 * SECOND)
    *_, last = world.read(place.token)
    assert place_after(last).read_ns == begun_ns + 10 * 60 * SECOND


def test_a_run_that_is_cancelled_in_a_pause_ends_there(world):
    paused = replace(MEASURING, since_ns=0, due_ns=T_NS, held_ns=3_600 * SECOND)
    cancelled = replace(REQUEST, state=RunState.CANCELLED)
    world.after_sleeps(10, lambda: world.requests.add(cancelled))
    assert world.read(paused.token)[-1] == PartitionEndRecord(world.now_ns, "0")
    assert world.read(MEASURING.token) == [PartitionEndRecord(world.now_ns, "0")]


def test_the_rows_of_a_chunk_then_a_wait_behind_its_last_key(world):
    rows = Rows(Answer(change(T_NS)), rest=[change(T_NS + 1)])
    *rows, last = world.read_chunk(rows, place=WITH)
    (child,) = last.children
    assert rows == [change(T_NS), change(T_NS + 1)]
    assert place_of(child.token) == RunWait(7, "t", 3, ("z",), since_ns=T_NS, where="a > 7")
    # All that is to come has later times, so the watermark goes on with the chunk's marker.
    assert child == ChildPartition(child.token, (WITH.token,), world.now_ns)
    # A worker whose clock is wrong reads at a time that is later than the chunk's.
    world.now_ns = T_NS - 9 * SECOND
    assert world.read_chunk(Rows(Answer(change(T_NS))))[-1].start_ns == T_NS + 1_000


def test_the_last_chunk_and_a_table_that_is_gone_end_the_run(world):
    end = PartitionEndRecord(T_NS + 1_000, "0")
    assert world.read_chunk(Rows(Answer(change(T_NS)), after=None)) == [change(T_NS), end]
    assert world.read_chunk(None) == [end]


def test_a_read_that_breaks_off_names_nothing_and_is_repeated(world):
    failure = QueryInterrupted("gone", code="UNAVAILABLE")
    with pytest.raises(QueryInterrupted):
        world.read_chunk(Rows(Answer(change(T_NS)), failure))
    assert world.read_chunk(Rows(Answer(change(T_NS))))[0] == change(T_NS)


@pytest.mark.parametrize(("refusals", "pause_s"), [(0, 30), (1, 60), (50, 600)])
def test_a_chunk_that_is_refused_is_read_later_at_another_time(world, refusals, pause_s):
    """Its time may have become too old; nothing may hold the watermark for good."""
    place = RunWait(7, "t", 2, ("k",), refusals=refusals).chunk(T_NS, rows=3)
    refused = QueryRefused("too old", code="FAILED_PRECONDITION")
    first, last = world.read_chunk(Rows(Answer(change(T_NS)), refused), place=place)
    assert first == change(T_NS)
    assert place_after(last) == RunWait(
        7, "t", 3, ("k",), due_ns=world.now_ns + pause_s * SECOND, refusals=refusals + 1,
        since_ns=T_NS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("details", "cause"), [({"details": "division by zero: 1 / 0"}, "division by zero: 1 / 0"),
                           ({}, "cannot"), ({"details": "x" * 999}, "x" * 300)],
)  # fmt: skip
def test_a_condition_that_cannot_be_evaluated_ends_its_run_with_the_cause(world, details, cause):
    """At another time it would fail again; what was read before stays."""
    rows = Rows(Answer(change(T_NS)), ConditionRefused("cannot", **details))
    first, last = world.read_chunk(rows, place=WITH)
    (child,) = last.children
    assert first == change(T_NS)
    assert place_of(child.token) == RunWait(7, "t", 3, ("k",), where="a > 7", failure=cause)
    assert world.read(child.token) == [PartitionEndRecord(world.now_ns, "0")]


@pytest.mark.parametrize("where", ["", "a > 7"])
def test_a_search_that_is_silent_reports_the_time_of_its_rows(world, where):
    """It may take longer than a query may be silent; at T its rows are still to come."""
    search = Silent(Answer(change(T_NS)))
    world.after_sleeps(4, search.found.set)
    *alive, row, _ = world.read_chunk(search, place=replace(WITH, where=where))
    assert row == change(T_NS)
    assert alive[:4] == [HeartbeatRecord(T_NS)] * 4


def test_a_plain_chunk_that_is_silent_for_too_long_is_read_later_at_another_time(world):
    """The watermark waits for a chunk; behind many rows that were deleted it may find none."""
    search = Silent()
    *alive, last = world.read_chunk(search)
    assert alive == [HeartbeatRecord(T_NS)] * 599
    assert place_after(last).refusals == 1
    assert search.is_cancelled


@pytest.mark.parametrize("finds", [False, True])
def test_a_run_that_is_cancelled_ends_in_the_middle_of_a_search(world, finds):
    """Rows that are found one at a time may take days; the watermark waits for all of them."""

    class Endless(Silent):
        async def receive(self):
            return Answer(change(T_NS))

    search = Endless(Answer(change(T_NS)))
    if finds:
        search.found.set()
    world.chunks = [search]
    query, records_found = world.query(WITH.token), []
    for records in itertools.islice(received(query, world.tasks), 9):
        records_found += records.decode()[0]
        if len(records_found) == 3:
            world.requests.add(replace(REQUEST, state=RunState.CANCELLED))
    assert records_found[3:] == [PartitionEndRecord(T_NS + 1_000, "0")]
    assert set(records_found[:3]) == {change(T_NS) if finds else HeartbeatRecord(T_NS)}
    assert search.is_cancelled


class Search(Silent):
    """A read whose first answer takes that many sleeps of its reader; `each`: every answer."""

    def __init__(self, *answers, sleeps=0, each=False):
        super().__init__(*answers)
        self.sleeps, self._each = sleeps, sleeps if each else None

    async def sleep(self, _seconds):
        self.sleeps -= 1
        if self.sleeps < 0:
            self.found.set()
            await asyncio.sleep(60)

    async def next_size(self):
        size = await super().next_size()
        if self._each is not None:
            self.found.clear()
            self.sleeps = self._each
        return size


def read_long(search, tasks, every_s=1.0, **known):
    long = LongRead(search, Answer("alive"), every_s=every_s, sleep=search.sleep, **known)
    return [response.decode()[0] for response in received(long, tasks)], long


@pytest.mark.parametrize("sleeps", [0, 3])
def test_what_is_read_comes_behind_a_sign_of_life_for_each_silent_while(tasks, sleeps):
    responses, long = read_long(Search(Answer("a"), Answer("b"), sleeps=sleeps), tasks)
    assert responses == [["alive"]] * sleeps + [["a"], ["b"]]
    assert long.rest() == ([], ("z",))
    # Only the silence before one answer counts.
    responses, _ = read_long(Search(Answer("a"), sleeps=3, each=True), tasks, SILENT_MAX_S / 4)
    assert responses == [["alive"]] * 3 + [["a"]] + [["alive"]] * 3


@pytest.mark.parametrize(
    ("with_condition", "kind", "text"),
    [
        (True, ConditionRefused, "found no row that meets the condition for 600 s"),
        (False, QueryRefused, "found no row of the table for 600 s"),
    ],
)
def test_a_read_that_is_silent_for_too_long_is_ended(tasks, with_condition, kind, text):
    search = Search(Answer("a"), sleeps=10_000)
    with pytest.raises(kind, match=text) as raised:
        read_long(search, tasks, SILENT_MAX_S / 4, with_condition=with_condition)
    assert isinstance(raised.value, ConditionRefused) is with_condition
    assert search.sleeps == 10_000 - 4
    assert search.is_cancelled
