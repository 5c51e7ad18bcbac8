"""A table is read in chunks beside the stream: where a run begins, what follows what, and when."""

import asyncio
import itertools
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading import received
from tests.unit.producer.backfill.test_stream import Answer, Query
from tidegate.producer.backfill.on_demand import OnDemandStream
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunPlace, chunk_token, place_of, wait_token
from tidegate.producer.errors import ConditionRefused, QueryInterrupted, QueryRefused
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionStartRecord,
)
from tidegate.schemas.progress import ChildPartition

T_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
REQUEST = TableRequest("t", 7, "p", (T_NS + 5_000) // 1_000, chunk_rows=3, share=20)
CHUNK = RunPlace(7, "t", 2, ("k",)).chunk(T_NS, rows=3)


def change(at_ns):
    return DataChangeRecord(
        at_ns, "00000000", "tx", True, "t", (), (), "INSERT", "NEW_ROW", 1, 1, "", False
    )


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


class World:
    """Time that passes where somebody sleeps; chunks as they are put in."""

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

    async def chunk(self, place):
        self.now_ns += SECOND
        return self.chunks.pop(0)

    def stream(self):
        return OnDemandStream(
            self.changes, self, self.requests, now_ns=lambda: self.now_ns, sleep=self.sleep
        )

    def query(self, token, start_ns=T_NS):
        return self.stream().query(token=token, start_ns=start_ns, end_ns=None, heartbeat_ms=1_000)

    def read(self, token, start_ns=T_NS):
        found = received(self.query(token, start_ns), self.tasks)
        return [record for one in found for record in one.decode()[0]]


@pytest.fixture
def world(tasks):
    return World(tasks)


# ---------------------------------------------------------------- the beginning

START = PartitionStartRecord(T_NS + 5_000, "00000007", (wait_token(RunPlace(7, "t")),))


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


def test_runs_of_two_tables_with_one_number_are_both_announced(world):
    """Two commands that read the requests at the same time choose the same number."""
    other = TableRequest("u", 7, "p", REQUEST.start_us + 2, chunk_rows=3, share=20)
    world.requests.add(other)
    times = [HeartbeatRecord(T_NS + at * 1_000) for at in (6, 9)]
    world.changes.responses = ([times[0]], [times[1]])

    assert world.read("p") == [START, times[0], other.start, times[1]]


TIMES = st.lists(st.integers(0, 12), min_size=1, max_size=12).map(sorted)


@given(times=TIMES, cuts=st.sets(st.integers(0, 12)), begin=st.integers(0, 12))
def test_however_often_it_is_read_a_run_begins_at_one_place(tasks_of_module, times, cuts, begin):
    """A query that begins later returns what one from the beginning returns from there on."""
    world = World(tasks_of_module)
    records = [HeartbeatRecord(T_NS + at * 1_000) for at in times]

    def read(from_us):
        start_ns = T_NS + from_us * 1_000
        kept = [one for one in records if one.timestamp_ns >= start_ns]
        bounds = [0, *sorted(cut for cut in cuts if cut < len(kept)), len(kept)]
        world.changes.responses = [kept[a:b] for a, b in itertools.pairwise(bounds)]
        return world.read("p", start_ns)

    whole, later = read(0), read(begin)

    assert [one for one in later if one != START] == [
        one for one in whole if one != START and one.timestamp_ns >= T_NS + begin * 1_000
    ]
    assert (START in whole) == (times[-1] > 5)
    assert (START in later) == (times[-1] > 5 >= begin)
    if START in later:
        place = later.index(START)
        assert all(one.timestamp_ns <= START.start_ns for one in later[:place])
        assert all(one.timestamp_ns > START.start_ns for one in later[place + 1 :])


@pytest.fixture(scope="module")
def tasks_of_module():
    from tidegate.producer.driver.tasks import TaskThread

    thread = TaskThread()
    yield thread
    thread.close()


@pytest.mark.parametrize("token", ["q", "", "tidegate-backfill/rest"])
def test_other_stream_partitions_announce_nothing(world, token):
    world.changes.responses = ([HeartbeatRecord(T_NS + 9_000)],)

    assert world.read(token) == [HeartbeatRecord(T_NS + 9_000)]


# ---------------------------------------------------------------- waiting


def test_a_chunk_is_read_at_the_present_time_once_it_is_due(world):
    place = RunPlace(7, "t", 2, ("k",), due_ns=T_NS + 4 * SECOND)
    *alive, last = world.read(wait_token(place))
    (child,) = last.children
    read_ns = child.start_ns

    assert [type(one) for one in alive] == [HeartbeatRecord] * 3  # once a second
    assert read_ns >= place.due_ns
    assert all(one.timestamp_ns <= read_ns for one in alive)
    assert place_of(child.token) == place.chunk(read_ns, rows=3)
    assert (child.parents, last.start_ns) == ((wait_token(place),), read_ns)


def test_no_time_is_reported_that_a_chunk_is_read_at_or_after(world):
    """Another worker's clock was ahead: the stream partition has published that already."""
    (last,) = world.read(wait_token(RunPlace(7, "t")), start_ns=T_NS + 60 * SECOND)

    assert last.start_ns == T_NS + 60 * SECOND


def test_a_run_that_is_stopped_reads_nothing_until_it_is_resumed(world):
    def put(state):
        request = TableRequest("t", 7, "p", 1, state, chunk_rows=5)
        return lambda: world.requests.add(request)

    put(RunState.STOPPED)()
    world.on_sleep = [lambda: None] * 30 + [put(RunState.RUNNING)]
    *alive, last = world.read(wait_token(RunPlace(7, "t")))

    assert len(alive) > 5
    assert place_of(last.children[0].token).rows == 5


@pytest.mark.parametrize(
    "request_",
    [TableRequest("t", 7, "p", 1, RunState.CANCELLED), TableRequest("t", 8, "p", 1)],
    ids=["cancelled", "a later run"],
)
def test_a_run_that_is_over_ends(world, request_):
    world.requests.add(request_)

    assert world.read(wait_token(RunPlace(7, "t"))) == [PartitionEndRecord(world.now_ns, "0")]
    assert world.read(chunk_token(CHUNK)) == [PartitionEndRecord(T_NS + 1_000, "0")]


def test_a_worker_that_does_not_know_the_request_yet_waits(world):
    world.requests = TableRequests()
    world.on_sleep = [lambda: None] * 10 + [lambda: world.requests.add(REQUEST)]

    *alive, last = world.read(wait_token(RunPlace(7, "t")))
    assert alive
    assert isinstance(last, ChildPartitionsRecord)


def test_a_cancelled_query_ends(world):
    world.requests = TableRequests()
    query = world.query(wait_token(RunPlace(7, "t")))
    world.on_sleep = [query.cancel]

    assert len(list(received(query, world.tasks))) == 1


# ---------------------------------------------------------------- reading


def test_the_rows_of_a_chunk_then_a_wait_behind_its_last_key(world):
    world.chunks = [Rows(Answer(change(T_NS)), rest=[change(T_NS + 1)])]
    *rows, last = world.read(chunk_token(CHUNK))
    (child,) = last.children

    assert rows == [change(T_NS), change(T_NS + 1)]
    assert place_of(child.token) == RunPlace(7, "t", 3, ("z",), since_ns=T_NS)
    # All that is to come has later times, so the watermark goes on with the chunk's marker.
    assert child == ChildPartition(child.token, (chunk_token(CHUNK),), world.now_ns)


def test_what_a_worker_without_a_right_clock_has_read_is_behind_its_time(world):
    world.now_ns = T_NS - 9 * SECOND
    world.chunks = [Rows(Answer(change(T_NS)))]

    assert world.read(chunk_token(CHUNK))[-1].start_ns == T_NS + 1_000


MEASURING = RunPlace(7, "t", 3, ("z",), since_ns=T_NS)


def test_a_wait_behind_a_chunk_measures_and_ends(world):
    """It begins when the chunk's marker is committed, five seconds after the time of the rows."""
    world.now_ns = T_NS + 5 * SECOND
    (last,) = world.read(wait_token(MEASURING), T_NS + 2 * SECOND)
    (child,) = last.children

    assert place_of(child.token) == MEASURING.measured(world.now_ns)
    assert child == ChildPartition(child.token, (wait_token(MEASURING),), world.now_ns)


def test_the_pause_goes_by_the_share_that_is_asked_for_now(world):
    """Without a request it cannot be over; its place holds through any number of workers."""
    world.now_ns = T_NS + SECOND
    paused = MEASURING.measured(world.now_ns)
    world.requests = TableRequests()
    world.on_sleep = [lambda: None] * 40 + [lambda: world.requests.add(replace(REQUEST, share=10))]
    (*_, last) = world.read(wait_token(paused), world.now_ns)

    assert last.start_ns == T_NS + 10 * SECOND
    assert place_of(last.children[0].token) == paused.chunk(last.start_ns, rows=3)


def test_a_run_that_is_cancelled_in_a_pause_ends_there(world):
    paused = replace(MEASURING, since_ns=0, due_ns=T_NS, held_ns=3_600 * SECOND)
    cancelled = replace(REQUEST, state=RunState.CANCELLED)
    world.on_sleep = [lambda: None] * 10 + [lambda: world.requests.add(cancelled)]

    assert world.read(wait_token(paused))[-1] == PartitionEndRecord(world.now_ns, "0")
    assert world.read(wait_token(MEASURING)) == [PartitionEndRecord(world.now_ns, "0")]


class Fleet:
    """Workers that follow a run: reads and commits take time, and queries break off."""

    def __init__(self, tasks, random, *, share):
        self.world = world = World(tasks)
        self.random = random
        world.requests.add(replace(REQUEST, share=share))
        self.held_ns, self.chunks = 0, []

    def follow(self, *, chunks):
        """Read a run until so many chunks have begun."""
        token, start_ns = wait_token(RunPlace(7, "t")), T_NS
        while len(self.chunks) < chunks:
            token, start_ns = self._next(token, start_ns)
            if (place := place_of(token)).is_chunk:
                self.chunks.append(place)

    def _next(self, token, start_ns):
        """Read a stream partition up to its committed marker; return its child and start."""
        place = place_of(token)
        if place.is_chunk:
            refused = [QueryRefused("no", code="INTERNAL")] if self.random.random() < 0.2 else []
            self.world.chunks = [Rows(*refused)]
        while (last := self._read(token, start_ns)) is None:
            start_ns = max(start_ns, self.reported_ns)
        self._pass(self.random.choice((0.0, 0.1, 0.5, 40.0)))  # Kafka commits
        if place.is_chunk:
            self.held_ns += self.world.now_ns - place.read_ns
        (child,) = last.children
        return child.token, child.start_ns

    def _read(self, token, start_ns):
        """Return what ends it; None where its worker dies, behind a time that is committed."""
        self.reported_ns = start_ns
        self._pass(self.random.choice((0.0, 0.3, 200.0 if place_of(token).is_chunk else 1.0)))
        lives = self.random.choice((1, 3, 1_000_000, 1_000_000))
        for response in received(self.world.query(token, start_ns), self.world.tasks):
            for record in response.decode()[0]:
                if isinstance(record, ChildPartitionsRecord):
                    return record if lives > 1 or place_of(token).is_chunk else None
                self.reported_ns = record.timestamp_ns
            lives -= 1
            if not lives:
                return None
        raise AssertionError

    def _pass(self, seconds):
        self.world.now_ns += int(seconds * SECOND)


@pytest.mark.parametrize("share", [20, 50, 90])
@pytest.mark.parametrize("seed", range(6))
def test_chunks_hold_the_watermark_for_their_share_at_most(tasks, share, seed):
    """However long reads and commits take, and if workers die and others take over."""
    fleet = Fleet(tasks, Random(seed), share=share)
    fleet.world.sleep_s = 7.0
    fleet.follow(chunks=6)
    took_ns = fleet.chunks[-1].read_ns - fleet.chunks[0].read_ns

    assert fleet.held_ns > 0
    assert fleet.held_ns * 100 <= took_ns * share


def test_a_pause_that_has_begun_goes_by_the_share_of_the_newest_request(world):
    """An outage in the middle of a chunk counts, and nobody wants to wait four times as long."""
    begun_ns, held_ns = world.now_ns, 8 * 3_600 * SECOND
    shorter = TableRequest("t", 7, "p", REQUEST.start_us, chunk_rows=3, share=99)
    world.sleep_s = 60.0
    world.on_sleep = [lambda: None] * 9 + [lambda: world.requests.add(shorter)]
    place = RunPlace(7, "t", 2, ("k",), due_ns=begun_ns, held_ns=held_ns)
    *_, last = world.read(wait_token(place))

    assert place_of(last.children[0].token).read_ns == begun_ns + 10 * 60 * SECOND


def test_the_last_chunk_ends_the_run(world):
    world.chunks = [Rows(Answer(change(T_NS)), after=None)]

    assert world.read(chunk_token(CHUNK)) == [change(T_NS), PartitionEndRecord(T_NS + 1_000, "0")]


def test_a_table_that_is_gone_ends_the_run(world):
    world.chunks = [None]

    assert world.read(chunk_token(CHUNK)) == [PartitionEndRecord(T_NS + 1_000, "0")]


def test_a_read_that_breaks_off_names_nothing_and_is_repeated(world):
    failure = QueryInterrupted("gone", code="UNAVAILABLE")
    world.chunks = [Rows(Answer(change(T_NS)), failure), Rows(Answer(change(T_NS)))]
    with pytest.raises(QueryInterrupted):
        world.read(chunk_token(CHUNK))

    assert world.read(chunk_token(CHUNK))[0] == change(T_NS)


@pytest.mark.parametrize(("refusals", "pause_s"), [(0, 30), (1, 60), (50, 600)])
def test_a_chunk_that_is_refused_is_read_later_at_another_time(world, refusals, pause_s):
    """Its time may have become too old; nothing may hold the watermark for good."""
    place = RunPlace(7, "t", 2, ("k",), refusals=refusals).chunk(T_NS, rows=3)
    world.chunks = [Rows(Answer(change(T_NS)), QueryRefused("too old", code="FAILED_PRECONDITION"))]
    first, last = world.read(chunk_token(place))

    assert first == change(T_NS)
    assert place_of(last.children[0].token) == RunPlace(
        7, "t", 3, ("k",), due_ns=world.now_ns + pause_s * SECOND, refusals=refusals + 1,
        since_ns=T_NS,
    )  # fmt: skip


# ---------------------------------------------------------------- a condition

WITH = RunPlace(7, "t", 2, ("k",), where="a > 7").chunk(T_NS, rows=3)


def test_the_condition_goes_with_the_run(world):
    wait = RunPlace(7, "t", 2, ("k",), where="a > 7")
    (last,) = world.read(wait_token(wait))
    assert place_of(last.children[0].token).where == "a > 7"

    world.chunks = [Rows(Answer(change(T_NS)))]
    *_, last = world.read(chunk_token(WITH))
    assert place_of(last.children[0].token).where == "a > 7"


@pytest.mark.parametrize(
    ("details", "cause"), [({"details": "division by zero: 1 / 0"}, "division by zero: 1 / 0"),
                           ({}, "cannot"), ({"details": "x" * 999}, "x" * 300)],
)  # fmt: skip
def test_a_condition_that_cannot_be_evaluated_ends_its_run_with_the_cause(world, details, cause):
    """At another time it would fail again; what was read before stays."""
    world.chunks = [Rows(Answer(change(T_NS)), ConditionRefused("cannot", **details))]
    first, last = world.read(chunk_token(WITH))
    (child,) = last.children

    assert first == change(T_NS)
    assert place_of(child.token) == RunPlace(7, "t", 3, ("k",), where="a > 7", failure=cause)
    assert world.read(child.token) == [PartitionEndRecord(world.now_ns, "0")]


@pytest.mark.parametrize("where", ["", "a > 7"])
def test_a_search_that_is_silent_reports_the_time_of_its_rows(world, where):
    """It may take longer than a query may be silent; at T its rows are still to come."""

    found = asyncio.Event()

    class Search(Rows):
        async def next_size(self):
            await found.wait()
            return await super().next_size()

    world.chunks = [Search(Answer(change(T_NS)))]
    world.on_sleep = [lambda: None] * 4 + [found.set]
    *alive, row, _ = world.read(chunk_token(replace(WITH, where=where)))

    assert row == change(T_NS)
    assert alive[:4] == [HeartbeatRecord(T_NS)] * 4


def test_a_plain_chunk_that_is_silent_for_too_long_is_read_later_at_another_time(world):
    """The watermark waits for a chunk; behind many rows that were deleted it may find none."""
    never = asyncio.Event()

    class Search(Rows):
        async def next_size(self):
            return await never.wait()

    plain, search = replace(WITH, where=""), Search()
    world.chunks = [search]
    *alive, last = world.read(chunk_token(plain))

    assert alive == [HeartbeatRecord(T_NS)] * 599
    assert place_of(last.children[0].token).refusals == 1
    assert search.is_cancelled


@pytest.mark.parametrize("finds", [False, True])
def test_a_run_that_is_cancelled_ends_in_the_middle_of_a_search(world, finds):
    """Rows that are found one at a time may take days; the watermark waits for all of them."""
    never = asyncio.Event()

    class Search(Rows):
        async def next_size(self):
            return await (super().next_size() if finds else never.wait())

        async def receive(self):
            return Answer(change(T_NS))

    search = Search(Answer(change(T_NS)))
    world.chunks = [search]
    query, found = world.query(chunk_token(WITH)), []
    for records in itertools.islice(received(query, world.tasks), 9):
        found += records.decode()[0]
        if len(found) == 3:
            world.requests.add(replace(REQUEST, state=RunState.CANCELLED))

    assert found[3:] == [PartitionEndRecord(T_NS + 1_000, "0")]
    assert set(found[:3]) == {change(T_NS) if finds else HeartbeatRecord(T_NS)}
    assert search.is_cancelled


def test_a_chunk_that_is_cancelled_names_nothing(world):
    rows = Rows()
    world.chunks = [rows]
    query = world.query(chunk_token(CHUNK))
    query.cancel()

    assert list(received(query, world.tasks)) == []
