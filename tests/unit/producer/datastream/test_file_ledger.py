"""What the reading of an object keeps: files, turns, times, copies, the source, its tokens."""

import itertools
import random
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datastream_files import backfill, history
from tidegate.producer.datastream import file_ledger
from tidegate.producer.datastream.errors import MixedSources, Position
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.event_memory import EventTimes, SeenUuids
from tidegate.producer.datastream.file_ledger import (
    US_PER_MINUTE,
    FileLedger,
    FoundFile,
    PublishedParts,
    SourceLimits,
    found_file,
    minute_of,
    minute_of_name,
)
from tidegate.producer.datastream.object_query import FileFigures
from tidegate.producer.datastream.object_reading import ObjectSource, Progress
from tidegate.producer.datastream.objects_query import (
    object_of,
    object_token,
    objects_minute,
    objects_token,
)
from tidegate.producer.datastream.stream import FilesCatalogue
from tidegate.producer.datastream.table_settings import ServerOrder
from tidegate.producer.translation.catalogues import BesideCatalogue
from tidegate.schemas.errors import SchemaError

FIRST = 1_000
LIMITS = SourceLimits(open_minutes=10, lateness_us=2 * US_PER_MINUTE, late_hours=1)


def file(minute, number=0):
    name = f"{minute << 36 | number:016x}"
    return FoundFile(f"{minute}/{number}", minute, name, (minute + 1) * US_PER_MINUTE)


def ledger(resumption=None):
    return FileLedger(resumption or {}, first_minute=FIRST, limits=LIMITS)


def read(one, found, records=1):
    one.add_record(found, records)
    one.complete(found, records=1)


def test_parts_of_files_are_read_again_in_the_order_of_their_turns():
    grows, other = file(FIRST), file(FIRST + 1)
    one = ledger({grows.name: "2/1,5/3,6/4", f"{grows.name}!": "7/6", other.name: "9/2,12/5"})
    one.add([other, grows])
    read_again = []
    while (found := one.next_file()).name in one.rereads:
        read_again.append((found, one.rereads.through(found.name)))
        one.rereads.note_read(found.name)
    assert read_again == [(grows, 2), (other, 9), (grows, 5), (grows, 6), (other, 12)]
    assert (one.published(grows), one.published(other)) == (6, 12)
    assert one.rereads.through(grows.name) is None
    assert one.add_record(grows, 7) == 6  # the refusal had the last turn
    assert one.refuse_from(grows, 8) == 6
    assert one.add_record(other, 13) == 7


def test_of_a_file_that_ends_before_its_published_records_no_part_is_left():
    shorter, other = file(FIRST), file(FIRST + 1)
    one = ledger({shorter.name: "2/1,5/3", other.name: "9/2"})
    one.add([shorter, other])
    assert one.next_file() == shorter
    one.complete(shorter, records=1)
    assert one.next_file() == other
    one.rereads.note_read(other.name)
    assert shorter.name not in one.rereads
    assert one.next_file() == other


def test_an_event_is_taken_once():
    one, found = ledger(), file(FIRST)
    assert [record for record in (1, 2, 1, 2, 3) if one.meet(found, record)] == [1, 2, 3]
    read(one, found, records=3)
    one.close((FIRST + 12) * US_PER_MINUTE)
    assert one.meet(found, 1)


def test_what_is_not_read_keeps_the_minutes_before_it_open():
    one, early, late = ledger(), file(FIRST), file(FIRST + 15)
    one.add([early, late])
    read(one, early)
    closed = one.close((FIRST + 1_000) * US_PER_MINUTE)
    assert (closed.first_open_minute, closed.files) == (FIRST + 5, (early.name,))
    postponed = ledger()
    postponed.add([early])
    postponed.postpone(early)
    assert postponed.next_file() is None
    assert postponed.close((FIRST + 1_000) * US_PER_MINUTE) is None
    postponed.add([early])
    assert postponed.next_file() == early


def test_the_watermark_is_behind_the_first_file_that_was_not_read():
    one = ledger()
    one.add([file(FIRST + 3), file(FIRST + 7)])
    now_us = (FIRST + 9) * US_PER_MINUTE + 5
    assert one.watermark_us(now_us) == (FIRST + 1) * US_PER_MINUTE
    one.complete(file(FIRST + 3), records=1)
    assert one.watermark_us(now_us) == (FIRST + 5) * US_PER_MINUTE
    one.complete(file(FIRST + 7), records=1)
    assert one.watermark_us(now_us) == now_us - LIMITS.lateness_us


def test_a_file_that_is_gone_leaves_the_position_with_its_minute():
    gone = file(FIRST + 2)
    one = ledger({gone.name: "3/1"})
    one.add([])
    assert one.close((FIRST + 12) * US_PER_MINUTE).files == ()
    assert one.close((FIRST + 30) * US_PER_MINUTE).files == (gone.name,)


def test_it_knows_how_much_is_left_and_what_was_new():
    known, new = file(FIRST + 2), file(FIRST + 4)
    one = ledger({known.name: "3/1"})
    assert (one.unread, one.open_since_us) == (0, FIRST * US_PER_MINUTE)
    one.add([known, new])
    assert (one.unread, one.open_since_us) == (2, (FIRST + 2) * US_PER_MINUTE)
    assert not one.complete(known, records=3)  # all of it was published before
    assert one.complete(new, records=0)
    assert (one.unread, one.open_since_us) == (0, FIRST * US_PER_MINUTE)
    longer = ledger({known.name: "3/1"})
    longer.add([known])
    assert longer.complete(known, records=4)


def lines_of_a_backlog(count):
    """Return how many lines of the ledger are run to read so many files, one a minute."""
    one, lines = ledger(), 0
    files = [file(FIRST + number) for number in range(count)]

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != file_ledger.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        one.add(files)
        while (found := one.next_file()) is not None:
            read(one, found)
            one.close((FIRST + count) * US_PER_MINUTE)
            one.watermark_us((FIRST + count) * US_PER_MINUTE)
    finally:
        sys.settrace(before)
    assert one.unread == 0
    return lines


def test_the_work_for_each_file_does_not_grow_with_the_backlog():
    assert lines_of_a_backlog(800) < 5 * lines_of_a_backlog(200)


def read_again(parts):
    found = []
    while (name := parts.first()) is not None:
        found.append((name, parts.through(name)))
        parts.note_read(name)
    return found


def test_what_no_listing_shows_is_not_read():
    parts = PublishedParts({"a": "2/1", "b": "3/2"})
    assert parts.first() is None
    parts.note_listed("b")
    parts.note_listed("x")
    assert read_again(parts) == [("b", 3)]
    assert "a" in parts
    parts.note_listed("a")
    assert read_again(parts) == [("a", 2)]
    parts = PublishedParts({"a": "2/1,5/3", "b": "3/2"})
    for name in "ab":
        parts.note_listed(name)
    assert parts.first() == "a"
    parts.drop("a")  # with all its parts
    assert read_again(parts) == [("b", 3)]
    parts.drop("a")


PATH = "2024/02/29/23/59/a.avro"
MINUTE = 28_487_519


def test_the_folder_is_the_minute():
    assert minute_of(PATH) == minute_of(f"x/{PATH}") == MINUTE
    for path in ("a.avro", "2024/02/30/00/00/a", "2024/02/29/24/00/a", "1969/12/31/23/59/a"):
        assert minute_of(path) is None
    # Names sort as minutes and do not depend on where the files are.
    one = found_file(f"bucket/o/{PATH}", within="bucket/o", modified_us=5)
    moved = found_file(f"/tmp/copy/o/{PATH}", within="/tmp/copy/o", modified_us=9)
    later = found_file("o/2024/03/01/00/00/a.avro", within="o", modified_us=0)
    assert one.name == moved.name < later.name
    assert minute_of_name(one.name) == one.minute == MINUTE
    assert one.end_us == (MINUTE + 1) * 60_000_000
    found = (found_file(f"o/2024/02/29/23/59/{n}", within="o", modified_us=0) for n in range(1_000))
    assert len({one.name for one in found}) == 1_000


def test_a_token_says_what_it_reads_and_from_which_minute_on():
    for folder in ("shop_orders", "", "a/b", "line\nbreak"):
        assert object_of(object_token(28_333_333, folder)) == (28_333_333, folder)
    assert objects_minute(objects_token(7)) == 7
    for token in ("", "P", "tidegate-datastream/object/x/y", "tidegate-backfill/rest"):
        assert object_of(token) is None
        assert objects_minute(token) is None
    assert object_of(objects_token(7)) is None
    assert objects_minute(object_token(7, "a")) is None


def key_of(number):
    return b"\1" + number.to_bytes(8, "big")


@pytest.mark.rule("datastream-in-order")
def test_in_any_order_of_arrival_times_grow_with_keys():
    for seed in range(50):
        rng = random.Random(seed)
        numbers = list(range(60))
        own = {n: 1_000 + 5 * n + rng.randrange(-40, 40) for n in numbers}
        arrival = sorted(numbers, key=lambda n: n + rng.uniform(0, 15))
        times = EventTimes()
        found = {
            n: times.time_of(key_of(n), own[n], earliest_us=0, latest_us=5_000)[0] for n in arrival
        }
        ordered = [found[n] for n in numbers]
        assert ordered == sorted(ordered)


def arrivals(rng):
    """Return key_of, own time and earliest open time of events that all come in time."""
    found, newest_us = [], 0
    own = {n: 1_000 + 5 * n + rng.randrange(-40, 40) for n in range(300)}
    for n in sorted(own, key=lambda n: n + rng.uniform(0, 15)):
        newest_us = max(newest_us, own[n])
        found.append((n, own[n], newest_us - 200))
    return found


def test_above_the_limit_those_that_are_not_late_are_in_order_and_the_others_named():
    named = 0
    for seed in range(100):
        events = arrivals(random.Random(seed))
        times, all_times, found = EventTimes(kept_max=8), EventTimes(), {}
        for n, own_us, earliest_us in events:
            more = {"earliest_us": earliest_us, "latest_us": 9_999}
            assert not all_times.time_of(key_of(n), own_us, **more)[1]
            time_us, is_late = times.time_of(key_of(n), own_us, **more)
            assert time_us >= earliest_us
            assert len(times._times) <= 8
            named += is_late
            if not is_late:
                found[n] = time_us
        in_order = [found[n] for n in sorted(found)]
        assert in_order == sorted(in_order)
        assert len(found) > 200
    assert named > 100


def test_what_is_closed_is_forgotten_and_only_what_was_among_it_is_late():
    times = EventTimes(kept_max=4)
    more = {"earliest_us": 100, "latest_us": 9_999}
    for n, own_us in ((10, 1_000), (20, 1_010), (30, 1_020), (40, 1_030), (50, 1_040)):
        assert times.time_of(key_of(n), own_us, **more) == (own_us, False)
    assert times.time_of(key_of(31), 500, **more) == (1_020, False)
    assert times.time_of(key_of(30), 500, **more) == (1_020, False)
    assert times.time_of(key_of(15), 500, **more) == (100, True)
    more["earliest_us"] = 1_021
    assert times.time_of(key_of(15), 1_022, **more) == (1_022, False)  # the forgotten are closed
    times = EventTimes()
    for number in range(100):
        times.time_of(key_of(number), number, earliest_us=0, latest_us=999)
    times.time_of(key_of(200), 200, earliest_us=90, latest_us=999)
    assert len(times._times) == 11


@pytest.mark.rule("datastream-late-events")
@pytest.mark.parametrize(
    ("arrivals", "earliest_us", "expected"),
    [
        ([(n, 10 * n) for n in range(1, 5)], 0, [10, 20, 30, 40]),
        # A clock that goes backwards does not reorder.
        ([(1, 50), (3, 70), (2, 10), (2, 90), (0, 60)], 0, [50, 70, 50, 50, 50]),
        ([(1, 20), (1, 21), (1, 5)], 0, [20, 20, 20]),  # equal keys have equal times
        ([(1, 20), (2, 2_000)], 30, [(30, True), 99]),  # late, and of the future
    ],
)
def test_an_event_has_its_own_time_if_the_order_permits_it(arrivals, earliest_us, expected):
    times = EventTimes()
    found = [
        times.time_of(key_of(number), own_us, earliest_us=earliest_us, latest_us=99)
        for number, own_us in arrivals
    ]
    assert found == [one if isinstance(one, tuple) else (one, False) for one in expected]


@pytest.mark.rule("datastream-copies-left-out")
def test_the_first_of_a_uuid_is_new_in_whatever_file():
    seen = SeenUuids(10)
    assert seen.add("a", "u1")
    assert not seen.add("a", "u1")
    assert not seen.add("b", "u1")
    assert seen.add("b", "u2")
    seen.close(("a", "nothing"))  # closed files are forgotten, and no other
    assert seen.add("c", "u1")
    assert not seen.add("c", "u2")
    assert seen.forgotten == 0


def test_progress_is_that_of_the_queries_that_run():
    figures = FileFigures()
    figures.add({"files": 2, "copies": 1})
    figures.add({"files": 3})
    assert figures.counts() == {"files": 5, "copies": 1}
    assert figures.progress() is None
    figures.report("a", Progress(2, 70))
    figures.report("b", Progress(3, 50))
    figures.report("a", Progress(1, 80))
    assert figures.progress() == Progress(4, 50)
    figures.forget("b")
    figures.forget("b")
    assert figures.progress() == Progress(1, 80)


AT = Position("file", 1)


def change(source, log_file=None):
    (event,) = history(source, random.Random(1), 1)
    if log_file is not None:
        event["source_metadata"]["log_file"] = event["sort_keys"][1] = log_file
    return parse_event(event, AT)


def test_the_first_event_says_the_kind_and_the_first_change_the_log():
    row = parse_event(backfill("mysql", random.Random(1), 1)[0], AT)
    source = ObjectSource("")
    assert (source.require(row), source.stored) == (True, "mysql/")
    assert not source.require(row)
    assert (source.require(change("mysql", "a/b.000001")), source.stored) == (True, "mysql/a/b")
    assert not source.require(change("mysql", "a/b.000002"))
    for other in (change("mysql", "c.000003"), change("oracle")):
        with pytest.raises(MixedSources):
            source.require(other)
    assert source.stored == "mysql/a/b"


def test_what_a_position_says_holds():
    for stored in ("mysql/", "mysql/bin", "oracle/"):
        source = ObjectSource(stored)
        assert source.stored == stored
        with pytest.raises(MixedSources, match=f"of {stored.partition('/')[0]} and of postgresql"):
            source.require(change("postgresql"))
    with pytest.raises(MixedSources, match="two binary logs"):
        ObjectSource("mysql/bin").require(change("mysql", "other.000001"))
    # One that a version has published which had forgotten the source is noted as nothing.
    source = ObjectSource("mysql/bin")
    assert not source.note(change("oracle"))
    assert not source.note(change("mysql", "other.000001"))
    assert source.stored == "mysql/bin"


A, B, C = (f"{letter * 8}-71ca-11e1-9e33-c80aa9429562" for letter in "abc")


def key(number, place=4):
    return b"\1" + struct.pack(">QQB", number, place, 1)


def ranked(servers, server, number, place=4):
    return servers.ranked(key(number, place), f"{server}:{number}")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 99), st.integers(0, 9)), unique=True))
def test_transactions_sort_by_server_and_then_by_number(places):
    servers = ServerOrder.of([A, B, f"{A.upper()}:100", C])
    names, offsets = (A, B, A, C), (0, 0, 100, 0)
    found = sorted(
        (ranked(servers, names[turn], offsets[turn] + number, place), turn, number, place)
        for turn, number, place in places
    )
    assert [one[1:] for one in found] == sorted(places)


def test_the_first_servers_keys_and_its_log_are_those_without_a_list():
    largest = 10**18 - 1
    for servers in (ServerOrder(), ServerOrder.of([A, B])):
        assert ranked(servers, A, largest) == key(largest)
        assert servers.log_of(None, f"{A}:7") == f"gtid {A}"
        assert servers.log_of("mysql-bin.000007", None) == "mysql-bin"
        assert servers.log_of(None, "0-1-270") == "gtid domain 0"
    assert servers.log_of(None, f"{B.upper()}:7") == f"gtid {A}"
    assert ranked(servers, B, 1) > key(largest)
    assert servers.log_of(None, f"{C}:7") == f"gtid {C}"


def test_sixteen_servers_have_an_order():
    names = [f"{number:08x}-71ca-11e1-9e33-c80aa9429562" for number in range(16)]
    servers = ServerOrder.of(names)
    found = [ranked(servers, name, number) for name in names for number in (0, 10**18 - 1)]
    assert all(one < other for one, other in itertools.pairwise(found))
    assert all(len(one) == len(key(1)) for one in found)


def test_a_table_that_is_named_as_rows_on_demand_are_is_refused():
    catalogue = BesideCatalogue(FilesCatalogue())
    with pytest.raises(SchemaError, match="orders__backfill") as raised:
        catalogue.table("shop.orders__backfill", stream="files")
    assert "tables_left_out" in raised.value.hint
