"""Queries of files: of one object over a folder, S3 and GCS, of all objects; and listings."""

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from tests.datastream_files import avro_bytes, history, write_stream
from tests.datastream_folder import MemoryFiles, minute_folder
from tests.datastream_model import ModelClock, ObjectModel
from tests.file_places import FolderPlace
from tests.reading import received
from tidegate.producer.core.queries import Consequence, consequence_of
from tidegate.producer.datastream import listing
from tidegate.producer.datastream.errors import FileDenied, MisplacedFile
from tidegate.producer.datastream.file_ledger import US_PER_MINUTE, SourceLimits
from tidegate.producer.datastream.file_limits import LARGE_BYTES
from tidegate.producer.datastream.file_store import Entry, LocalStore, LocationGone
from tidegate.producer.datastream.objects_query import ObjectsQuery, object_token, objects_minute
from tidegate.producer.datastream.stream import DatastreamFiles
from tidegate.producer.datastream.waiting_query import RecordsResponse, WaitingQuery
from tidegate.producer.driver.runtime import SystemClock
from tidegate.producer.errors import TokenRefused
from tidegate.producer.records import DataChangeRecord, HeartbeatRecord, PartitionStartRecord
from tidegate.schemas.errors import ConfigError, UnreachableError

MINUTE = 28_487_519


def first(minutes=0):
    """Return the minute of a file that came some minutes ago."""
    return datetime.now(UTC) - timedelta(minutes=5 - minutes)


def query_of(tmp_path, tasks, *, parks=True, token=None):
    start_us = int((first() - timedelta(hours=1)).timestamp()) * 1_000_000
    files = DatastreamFiles(
        LocalStore(), str(tmp_path), tasks, SystemClock(), limits=SourceLimits(), poll_ms=50,
        parks=parks,
    )  # fmt: skip
    if token is None:
        token = object_token(start_us // 60_000_000, "shop_orders")
    return files.query(token=token, start_ns=start_us * 1_000, end_ns=None, heartbeat_ms=20)


def read(tasks, query, count):
    """Return records until there are so many changes."""

    async def run():
        records = []
        while sum(isinstance(record, DataChangeRecord) for record in records) < count:
            assert await query.next_size() is not None
            records += (await query.receive()).decode()[0]
        return records

    return tasks.run(run)


def test_files_that_appear_are_read_and_heartbeats_do_not_fall(tmp_path, tasks):
    events = history("mysql", random.Random(1), 20)
    write_stream(tmp_path, "mysql", events[:7], first=first())
    query = query_of(tmp_path, tasks)
    records = read(tasks, query, 7)
    write_stream(tmp_path, "mysql", events[7:], first=first(1))
    records += read(tasks, query, 13)
    query.cancel()
    rows = [
        {**record.mods[0].new_values, **record.mods[0].old_values}["_datastream_uuid"]
        for record in records
        if isinstance(record, DataChangeRecord)
    ]
    assert rows == [event["uuid"] for event in events]
    beats = [record.timestamp_ns for record in records if isinstance(record, HeartbeatRecord)]
    assert beats == sorted(beats)


def test_the_initial_query_leads_to_the_objects_and_each_to_its_files(tmp_path, tasks):
    write_stream(tmp_path, "mysql", history("mysql", random.Random(1), 7), first=first())
    ((root,),) = [
        response.decode()[0] for response in received(query_of(tmp_path, tasks, token=""), tasks)
    ]
    (child,) = root.children
    assert (child.parents, child.start_ns) == ((), root.start_ns)
    objects = query_of(tmp_path, tasks, token=child.token)
    start, _ = next(received(objects, tasks)).decode()[0]
    objects.cancel()
    (token,) = start.tokens
    assert token == object_token(objects_minute(child.token), "shop_orders")
    query = query_of(tmp_path, tasks, token=token)
    while query._open is None:
        query.step()
    stream = query._open._stream
    query.cancel()
    assert stream.closed
    query = query_of(tmp_path, tasks, token=token)
    read(tasks, query, 7)
    query.cancel()
    with pytest.raises(TokenRefused, match="another source"):
        query_of(tmp_path, tasks, token="P1")
    cancelled = query_of(tmp_path, tasks, token="")
    cancelled.cancel()
    assert list(received(cancelled, tasks)) == []


@pytest.mark.rule("datastream-hostile-files")
def test_a_large_block_is_read_once_its_bytes_are_held(tmp_path, tasks):
    events = history("mysql", random.Random(1), 3)
    events[1]["payload"]["note"] = "a" * (4 * LARGE_BYTES)
    write_stream(tmp_path, "mysql", events, first=first())
    query = query_of(tmp_path, tasks)
    sizes = []

    async def run():
        read_records = []
        while sum(isinstance(record, DataChangeRecord) for record in read_records) < 3:
            sizes.append(await query.next_size())
            held = query.held_bytes
            records, unfinished = (await query.receive()).decode()
            assert unfinished == query.held_bytes
            if any(isinstance(record, DataChangeRecord) for record in records):
                assert sizes[-1] + held >= 8 * 4 * LARGE_BYTES
            read_records += records
        while query.held_bytes:  # the block is held until its last event was read
            await query.next_size()
            await query.receive()

    tasks.run(run)
    assert 8 * LARGE_BYTES in sizes  # what is not known to be large
    query.cancel()


def test_a_portion_ends_where_its_records_are_many_bytes(tmp_path, tasks):
    events = history("mysql", random.Random(1), 7)
    for event in events:
        event["payload"]["note"] = "a" * LARGE_BYTES
    write_stream(tmp_path, "mysql", events, first=first())
    query, left = query_of(tmp_path, tasks), 7
    while left:
        count = sum(isinstance(record, DataChangeRecord) for record in query.step()[0])
        assert count <= 1
        left -= count
    query.cancel()


class Reader:
    """One object at a place, read by the production core with a clock that a test sets."""

    def __init__(self, place):
        self.place = place
        # The servers' clocks say when a file was written.
        self.now_us = time.time_ns() // 1_000
        self.minute = self.now_us // US_PER_MINUTE - 30
        self.events = iter(history("mysql", random.Random(3), 60))
        self.sent = []
        self.model = ObjectModel(
            now_us=self.now_us,
            start_us=(self.minute - 5) * US_PER_MINUTE,
            folder=f"{place.root}/shop_orders",
            limits=SourceLimits(open_minutes=1, lateness_us=60_000_000),
            files=place.store,
        )

    def data(self, count=3):
        some = [next(self.events) for _ in range(count)]
        self.sent += [event["uuid"] for event in some]
        return avro_bytes("mysql", some, per_block=600)

    def put(self, name, data, *, minute=0):
        folder = minute_folder(self.minute + minute)
        self.place.put(f"shop_orders/{folder}/{name}.avro", data)

    def run(self, *, minutes=0):
        """Let time pass and read; return the uuids that were published so far."""
        self.model.clock.now_us += minutes * US_PER_MINUTE
        self.model.run()
        return self.model.uuids()


def test_files_are_read_once_though_workers_die_and_files_come_late(place):
    reader = Reader(place)
    reader.put("a", reader.data())
    reader.put("b", reader.data(), minute=1)
    assert reader.run() == reader.sent
    reader.model.die()
    assert reader.run() == reader.sent
    reader.put("c", reader.data(), minute=29)
    assert reader.run(minutes=1) == reader.sent
    assert reader.run(minutes=1) == reader.sent
    reader.put("late", reader.data())  # its minute was closed
    assert reader.run(minutes=11) == reader.sent
    assert reader.model.query._reading.counts["late_files"] == 1
    reader.model.die()
    assert reader.run(minutes=11) == reader.sent


def test_a_file_that_is_gone_holds_up_nothing(place):
    reader = Reader(place)
    reader.put("a", reader.data())
    reader.put("b", reader.data())
    reader.model.step()  # lists
    reader.place.remove(f"shop_orders/{minute_folder(reader.minute)}/a.avro")
    assert reader.run() == reader.sent[3:]


def test_what_was_met_is_counted_and_logged(place):
    reader = Reader(place)
    figures = reader.model.source.figures
    data = reader.data()
    with capture_logs() as logs:
        reader.put("a", data)
        reader.put("b", reader.data(), minute=1)
        reader.run()
        assert figures.counts() == {"files": 2, "events": 6, "late_events": 6}
        assert figures.progress().unread == 0
        reader.put("late", data)  # copies, in a file of a minute that was closed
        reader.run(minutes=11)
        reader.run(minutes=2)
    assert figures.counts()["late_files"] == 1
    assert figures.counts()["files"] == 3
    assert figures.progress().open_since_us > reader.minute * US_PER_MINUTE
    events = ("files were read", "events or files were late")
    lines = [log for log in logs if log["event"] in events]
    assert [(line["event"], line.get("files"), line.get("late_files")) for line in lines] == [
        ("events or files were late", None, 1),
        ("files were read", 2, None),
        ("files were read", 1, None),
    ]
    reader.model.die()
    assert figures.progress() is None


class SlowFiles(MemoryFiles):
    """Files in a bucket that takes its time for each folder, and may fail at one."""

    clock = None
    fails_at = None

    def entries(self, folder):
        self.clock.now_us += 300_000
        return super().entries(folder)

    def files_below(self, folder):
        self.clock.now_us += 300_000
        if len(self.listed) == self.fails_at:
            raise UnreachableError("the bucket does not answer")
        return super().files_below(folder)


def slow_history(hours=400):
    """Return the reading of a slow bucket with a file in each hour, and the uuids of its events."""
    files, first = SlowFiles(), 28_000_000
    reader = ObjectModel(now_us=(first + 60 * hours) * US_PER_MINUTE, files=files)
    files.clock = reader.clock
    events = history("mysql", random.Random(1), hours)
    for number, event in enumerate(events):
        path = f"root/shop_orders/{minute_folder(first + 60 * number)}/a.avro"
        files.put(path, avro_bytes("mysql", [event]), modified_us=0)
    return reader, [event["uuid"] for event in events]


def test_a_long_listing_is_never_silent_for_long_and_is_repeated_once_it_failed():
    reader, uuids = slow_history()
    began_us, longest_us = reader.clock.now_us, 0
    while not reader.query or reader.query._reading.progress is None:
        before_us = reader.clock.now_us
        reader.step()
        longest_us = max(longest_us, reader.clock.now_us - before_us)
    assert reader.clock.now_us - began_us > 120_000_000
    assert longest_us <= 1_500_000
    reader.run()
    assert reader.uuids() == uuids
    # One that fails halfway is not taken for a whole one.
    reader, uuids = slow_history(hours=50)
    reader.files.fails_at = 30
    with pytest.raises(UnreachableError):
        reader.run()
    reader.files.fails_at = None
    reader.run()  # the same query: it lists again
    assert len(reader.published) == len(uuids)


class DenyingFiles(MemoryFiles):
    """Files of which one may not be opened, or not be read; `denies` may be a folder."""

    denies = ""
    opens = False

    def files_below(self, folder):
        if folder == self.denies:
            raise ConfigError(f"source.location: {folder} may not be read")
        return super().files_below(folder)

    def open(self, path):
        if self.denies and path.startswith(self.denies):
            denied = ConfigError(f"source.location: {path} may not be read")
            if not self.opens:
                raise denied
            return SimpleNamespace(read=Mock(side_effect=denied), close=Mock())
        return super().open(path)


def denying_model(**more):
    """Return a reading of two files, their folder, and the uuids of their events."""
    minute, events = 28_000_000, history("mysql", random.Random(1), 6)
    reader = ObjectModel(now_us=(minute + 2) * US_PER_MINUTE, files=DenyingFiles(), **more)
    folder = f"root/shop_orders/{minute_folder(minute)}"
    for name, some in (("a.avro", events[:3]), ("b.avro", events[3:])):
        data = avro_bytes("mysql", some)
        reader.files.put(f"{folder}/{name}", data, modified_us=(minute + 1) * US_PER_MINUTE)
    return reader, folder, [event["uuid"] for event in events]


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("parks", [False, True])
def test_a_file_that_may_not_be_read_stops_its_stream_partition_and_is_read_later(parks, opens):
    reader, folder, uuids = denying_model(parks=parks)
    reader.files.denies, reader.files.opens = f"{folder}/a.avro", opens
    reader.run()  # it may still be written: with others first, then with the rights that it gets
    assert len(reader.published) == 3
    reader.clock.now_us += 20 * US_PER_MINUTE
    with pytest.raises(FileDenied, match="may not be read") as raised:
        reader.run()
    assert raised.value.fields["file"] == f"{folder}/a.avro"
    consequence = consequence_of(raised.value, token=reader.partition.child.token)
    assert consequence is Consequence.STOP_STREAM_PARTITION
    reader.commit()
    reader.die()
    reader.files.denies = ""
    reader.run()
    assert (sorted(reader.uuids()), reader.dead_letters) == (sorted(uuids), [])


def test_a_published_file_or_a_location_that_may_not_be_read_any_more_stops():
    reader, folder, _ = denying_model()
    reader.run()
    reader.die()
    reader.files.denies = f"{folder}/b.avro"
    with pytest.raises(FileDenied):
        reader.run()
    reader, folder, _ = denying_model()
    reader.files.denies = folder
    with pytest.raises(ConfigError) as raised:
        reader.run()
    consequence = consequence_of(raised.value, token=reader.partition.child.token)
    assert consequence is Consequence.STOP_WORKER


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_while_a_location_is_gone_no_file_of_it_is_taken_for_read(place, steps):
    reader = Reader(place)
    reader.put("a", reader.data())
    for _ in range(steps):
        reader.model.step()
    reader.model.commit()
    before = reader.model.partition.snapshot()
    if reader.model.query is not None:
        reader.model.query.stop()  # a file that is open stays readable in a folder
        reader.model.query._open = None
    place.vanish()
    with pytest.raises(LocationGone):
        reader.run()
    reader.model.commit()
    assert reader.model.partition.snapshot().watermark_us == before.watermark_us


def test_a_location_that_comes_back_is_read_on(tmp_path):
    (tmp_path / "files").mkdir()
    reader = Reader(FolderPlace(tmp_path / "files"))
    reader.put("a", reader.data())
    assert reader.run() == reader.sent
    kept = (tmp_path / "files").rename(tmp_path / "kept")
    with pytest.raises(LocationGone):
        reader.run(minutes=1)
    reader.model.commit()
    reader.model.die()
    kept.rename(tmp_path / "files")
    reader.put("b", reader.data(), minute=1)
    assert sorted(reader.run(minutes=2)) == sorted(reader.sent)


def files_from(*place, **minutes):
    return [file for files in listing.files_from(*place, **minutes) for file in files]


def listed_store(minutes):
    store = MemoryFiles()
    for number, minute in enumerate(minutes):
        store.put(f"r/o/{minute_folder(minute)}/{number}.avro", b"", modified_us=number)
    return store


@pytest.mark.parametrize("span", [1, 100, 2_000, 2_000_000])
def test_every_file_from_the_minute_on_is_found_and_none_before(span):
    rng = random.Random(span)
    minutes = [MINUTE + rng.randrange(-span, span) for _ in range(60)] + [MINUTE, MINUTE - 1]
    store = listed_store(minutes)
    for other in (".hidden.avro", "notes.txt"):
        store.put(f"r/o/{minute_folder(MINUTE)}/{other}", b"")
    files = files_from(store, "r/o", from_minute=MINUTE, now_minute=MINUTE + span)
    assert files_from(LocalStore(), "/gone", from_minute=MINUTE, now_minute=MINUTE) == []
    assert sorted(file.minute for file in files) == sorted(m for m in minutes if m >= MINUTE)


def test_a_listing_comes_in_parts_and_a_short_one_costs_one_for_each_hour():
    store = listed_store(range(MINUTE - 3_000, MINUTE + 5))
    files_from(store, "r/o", from_minute=MINUTE - 10, now_minute=MINUTE)
    assert len(store.listed) <= 3
    store = listed_store(range(MINUTE - 60 * 24 * 40, MINUTE, 60))
    looked, entries = [], store.entries
    store.entries = lambda folder: looked.append(folder) or entries(folder)
    first = MINUTE - 60 * 24 * 40
    parts = listing.files_from(store, "r/o", from_minute=first, now_minute=MINUTE)
    for number, _ in enumerate(parts, 1):
        assert len(looked) + len(store.listed) == number
    assert len(store.listed) == 24 * 40


@pytest.mark.parametrize("folder", ["", minute_folder(MINUTE).rpartition("/")[0]])
def test_a_file_outside_of_the_folders_of_minutes_is_refused(folder):
    store = listed_store([MINUTE])
    store.put(f"r/o/{folder}/a.avro".replace("//", "/"), b"")
    with pytest.raises(MisplacedFile):
        files_from(store, "r/o", from_minute=MINUTE if folder else 0, now_minute=MINUTE)


NOW_US = (MINUTE + 100) * 60_000_000


def objects_query(store, named=(), start_us=0):
    return ObjectsQuery(
        store, "r", named=named, start_us=start_us, first_minute=7, lateness_us=60_000_000,
        poll_us=1_000_000, tasks=SimpleNamespace(signal=lambda: None), clock=ModelClock(NOW_US),
        heartbeat_ms=1_000,
    )  # fmt: skip


def store_of(*folders):
    store = MemoryFiles()
    for folder in folders:
        store.put(f"r/{folder}/{minute_folder(MINUTE)}/a.avro".replace("//", "/"), b"")
    return store


def test_each_folder_is_named_once_and_a_new_one_later():
    store = store_of("a", "b")
    query = objects_query(store)
    records, _ = query.step()
    assert [record.tokens for record in records[:-1]] == [
        (object_token(7, "a"),),
        (object_token(7, "b"),),
    ]
    assert isinstance(records[-1], HeartbeatRecord)
    assert query.step() == ([], NOW_US + 1_000_000)
    assert query.earliest_us * 1_000 == records[-1].timestamp_ns
    for name, back_us in (("c", 0), ("d", 3_600_000_000)):  # also while the clock is set back
        store.put(f"r/{name}/{minute_folder(MINUTE)}/a.avro", b"")
        query.clock.now_us += 1_000_000
        query.clock.back_us = back_us
        records, _ = query.step()
        assert [record.tokens for record in records[:-1]] == [(object_token(7, name),)]


def test_a_folder_may_have_any_name_of_which_a_token_can_be_made():
    names = ["a b", "naïve-日本", "day=1&x=%2F#?"]
    records, _ = objects_query(store_of(*names)).step()
    assert [record.tokens for record in records[:-1]] == [
        (object_token(7, name),) for name in sorted(names)
    ]
    with pytest.raises(MisplacedFile, match=r"not UTF-8.*caf\\\\udce9"):
        objects_query(store_of("caf\udce9")).step()


def test_an_object_begins_at_the_first_time_that_is_open():
    query = objects_query(store_of("a"), start_us=500)
    records, _ = query.step()
    assert records[0].start_ns == 501_000
    assert records[-1].timestamp_ns == (NOW_US - 60_000_000 + 1) * 1_000
    query.clock.now_us += 60_000_000
    query._store.put(f"r/c/{minute_folder(MINUTE)}/a.avro", b"")
    later, _ = query.step()
    assert later[0].start_ns == records[-1].timestamp_ns


def test_a_location_with_one_object_is_that_object_and_an_empty_one_has_none():
    records, _ = objects_query(store_of("")).step()
    assert [record.tokens for record in records if isinstance(record, PartitionStartRecord)] == [
        (object_token(7, ""),)
    ]
    records, _ = objects_query(MemoryFiles()).step()
    assert [type(record) for record in records] == [HeartbeatRecord]
    # One that the position has is not named again.
    records, _ = objects_query(store_of("a", "b"), named=[object_token(7, "a")]).step()
    assert [record.tokens for record in records[:-1]] == [(object_token(7, "b"),)]


@pytest.mark.parametrize("there", [[], [Entry(".staging", "r/.staging", is_folder=True)]])
def test_a_location_is_no_object_because_its_first_folder_comes_while_it_is_listed(there):
    store = store_of("a")
    listings = [there]
    store.entries = lambda folder: (
        listings.pop() if listings else MemoryFiles.entries(store, folder)
    )
    query = objects_query(store)
    records, _ = query.step()
    assert [type(record) for record in records] == [HeartbeatRecord]
    query.clock.now_us += 1_000_000
    records, _ = query.step()
    assert [record.tokens for record in records[:-1]] == [(object_token(7, "a"),)]


class Steps(WaitingQuery):
    """Returns what it was given, then nothing for an hour."""

    earliest_us = 77

    def __init__(self, tasks, *steps, heartbeat_ms=50):
        super().__init__(tasks=tasks, clock=SystemClock(), heartbeat_ms=heartbeat_ms)
        self.steps = list(steps)
        self.stopped = 0
        self.calls = 0
        self.entered = threading.Event()
        self.may_go = threading.Event()

    def step(self):
        self.calls += 1
        if not self.steps:
            return [], self.clock.monotonic_us() + 3_600_000_000
        step = self.steps.pop(0)
        if step == "block":
            self.entered.set()
            self.may_go.wait(30)
            return [], 0
        if isinstance(step, Exception):
            raise step
        return step, 0

    def stop(self):
        self.stopped += 1


def following(tasks, query):
    async def run():
        if await query.next_size() is None:
            return None
        return (await query.receive()).decode()[0]

    return tasks.run(run)


def test_a_quiet_query_says_that_it_lives(tasks):
    query = Steps(tasks, heartbeat_ms=1)
    for _ in range(3):
        (heartbeat,) = following(tasks, query)
        assert heartbeat == HeartbeatRecord(77_000)
    assert query.calls == 1
    assert RecordsResponse([heartbeat] * 3).size_bytes == 3 * 64
    hungry = Hungry(tasks, *[[]] * 3, heartbeat_ms=0)
    assert following(tasks, hungry) == [HeartbeatRecord(77_000)]


def test_an_error_comes_after_the_records_before_it(tasks):
    query = Steps(tasks, [HeartbeatRecord(1)])
    query.fail_with(UnreachableError("gone"))
    with pytest.raises(UnreachableError, match="gone"):
        following(tasks, query)
    direct = Steps(tasks, [HeartbeatRecord(1)], UnreachableError("away"), heartbeat_ms=3_600_000)
    assert following(tasks, direct) == [HeartbeatRecord(1)]
    with pytest.raises(UnreachableError, match="away"):
        following(tasks, direct)


def test_a_cancelled_query_ends_and_releases_what_is_open(tasks):
    query = Steps(tasks, heartbeat_ms=3_600_000)
    canceller = threading.Timer(0.05, query.cancel)
    canceller.start()
    assert following(tasks, query) is None
    canceller.join(30)  # the query ends before `cancel` has released what is open
    assert query.stopped >= 1
    assert not tasks.run(query.receive).decode()[0]  # nothing is done any more


def test_a_step_that_runs_releases_what_is_open_itself(tasks):
    query = Steps(tasks, "block")
    results = []
    waiting = threading.Thread(target=lambda: results.append(following(tasks, query)))
    waiting.start()
    assert query.entered.wait(30)
    query.cancel()
    assert query.stopped == 0
    query.may_go.set()
    waiting.join(30)
    assert results == [None]
    assert query.stopped == 1


class Hungry(Steps):
    held_bytes = 30

    @property
    def needed_bytes(self):
        return 100 if len(self.steps) > 1 else 0


def test_a_step_that_needs_bytes_waits_until_they_are_held(tasks):
    query = Hungry(tasks, [], [HeartbeatRecord(1)], [HeartbeatRecord(2)], heartbeat_ms=3_600_000)
    sizes = []

    async def run():
        decoded = []
        for _ in range(3):
            sizes.append(await query.next_size())
            calls = query.calls
            response = await query.receive()
            assert query.calls == calls + (sizes[-1] == 70)  # beyond what is held already
            decoded.append(response.decode())
        return decoded

    assert tasks.run(run) == [
        ([], 30), ([HeartbeatRecord(1)], 30), ([HeartbeatRecord(2)], 30),
    ]  # fmt: skip
    assert sizes == [70, 70, 64]
