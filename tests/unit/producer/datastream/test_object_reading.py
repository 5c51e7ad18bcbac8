"""The files of one object: published once, whatever arrives, dies and comes again."""

import dataclasses
import functools
import random

import pytest

from tests.datastream_files import SOURCES, avro_bytes, history, json_bytes
from tests.datastream_folder import minute_folder
from tests.datastream_model import ObjectModel
from tests.datastream_worlds import judge, run_world
from tidegate.producer.core.file_position import CLOSED, SOURCE
from tidegate.producer.datastream import file_ledger, object_reading
from tidegate.producer.datastream.errors import (
    DatastreamError,
    FileCutShort,
    FileNamesCollide,
    InvalidEvent,
    MisplacedFile,
    MissingKeyColumn,
    MissingSortKey,
    MixedSources,
    UnknownReadMethod,
    WrongSchema,
)
from tidegate.producer.datastream.event_memory import EventTimes
from tidegate.producer.datastream.event_records import time_and_turn
from tidegate.producer.datastream.file_ledger import US_PER_MINUTE, SourceLimits
from tidegate.producer.datastream.objects_query import object_of
from tidegate.producer.datastream.table_settings import ServerOrder, TableSettings
from tidegate.schemas.topics import slot_of

FIRST = 1_700_000_040_000_000 // US_PER_MINUTE
ROOT = "root/shop_orders"


def model(**more):
    start_us = more.pop("start_us", (FIRST - 1) * US_PER_MINUTE)
    now_us = more.pop("now_us", (FIRST + 5) * US_PER_MINUTE)
    return ObjectModel(now_us=now_us, start_us=start_us, **more)


def events(count, source="mysql", seed=1):
    return history(source, random.Random(seed), count)


def put(reader, number, source_events, *, source="mysql", minute=FIRST, after_us=0, data=None):
    path = f"{ROOT}/{minute_folder(minute)}/{number}.avro"
    content = avro_bytes(source, source_events) if data is None else data
    reader.files.put(path, content, modified_us=(minute + 1) * US_PER_MINUTE + after_us)
    return path


def names(source_events):
    return [event["uuid"] for event in source_events]


def begin(reader):
    while not reader.partition.pending:
        reader.step()
    reader.commit()


def later(reader, minutes):
    reader.clock.now_us += minutes * US_PER_MINUTE
    reader.run()


def of_another_log(source_events):
    for event in source_events:
        event["source_metadata"]["log_file"] = event["sort_keys"][1] = "replica-bin.000001"
    return source_events


@pytest.mark.rule("datastream-published-once")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(6))
def test_worlds(source, seed):
    assert judge(run_world(seed, source=source)) == []


def test_a_death_in_the_middle_of_a_file_goes_on_behind_its_last_record():
    reader, source_events = model(), events(500)
    put(reader, 1, source_events)
    put(reader, 2, source_events[:1], minute=FIRST + 1)
    begin(reader)
    assert 0 < len(reader.published) < 500
    reader.die()
    reader.run()
    assert reader.uuids() == names(source_events)


@pytest.mark.rule("datastream-copies-left-out")
def test_copies_are_recognised_after_a_death_whatever_is_read_first():
    reader, source_events = model(), events(6)
    put(reader, 5, source_events[:3])
    begin(reader)
    reader.die()
    put(
        reader, 1, source_events[:2] + source_events[4:]
    )  # two copies, in a file that sorts before the other one
    reader.run()
    assert sorted(reader.uuids()) == sorted(names(source_events[:3] + source_events[4:]))
    assert reader.filtered == 2


def test_a_backlog_is_read_without_copies_though_its_minutes_were_over_long_ago():
    reader, source_events = model(now_us=(FIRST + 600) * US_PER_MINUTE), events(8)
    put(reader, 1, source_events[:4])
    put(reader, 2, source_events[3:6], minute=FIRST + 2)
    put(reader, 3, source_events[5:], minute=FIRST + 4)
    reader.run()
    assert reader.uuids() == names(source_events)
    assert reader.filtered == 2


def test_a_closed_minutes_files_leave_the_position_and_are_not_read_again():
    reader, source_events = model(), events(6)
    put(reader, 1, source_events[:3])
    put(reader, 2, source_events[3:], minute=FIRST + 1)
    reader.run()
    assert len(reader.committed.boundary) == 2 + len({CLOSED, SOURCE})
    later(reader, 60)
    closed = str(FIRST + 5 + 60 - 11)
    assert dict(reader.committed.boundary) == {CLOSED: closed, SOURCE: "mysql/mysql-bin"}
    reader.die()
    later(reader, 60)
    assert len(reader.uuids()) == 6


@pytest.mark.rule("datastream-in-order")
def test_a_late_file_is_published_once_and_counted():
    reader, source_events = model(), events(6)
    put(reader, 1, source_events[:3])
    later(reader, 60)
    late = put(reader, 2, source_events[3:], after_us=50 * US_PER_MINUTE)
    later(reader, 15)
    assert reader.query._reading.counts["late_files"] == 1
    assert len(reader.uuids()) == 6
    for _ in range(3):
        reader.die()
        later(reader, 15)
    assert len(reader.uuids()) == 6
    later(reader, 48 * 60)
    assert reader.files.opened.count(late) >= 1
    assert dict(reader.committed.boundary).keys() == {CLOSED, SOURCE}


def test_a_late_file_without_an_event_is_late_once():
    reader, source_events = model(now_us=(FIRST + 60) * US_PER_MINUTE), events(3)
    put(reader, 1, source_events)
    reader.run()
    path = put(reader, 2, [], after_us=30 * US_PER_MINUTE)
    for _ in range(5):
        later(reader, 15)
    assert reader.query._reading.counts["late_files"] == 1
    assert reader.files.opened.count(path) == 1


def test_files_are_listed_though_the_wall_clock_is_set_back():
    reader, source_events = model(now_us=(FIRST + 60) * US_PER_MINUTE), events(6)
    put(reader, 1, source_events[:3], minute=FIRST + 59)
    reader.run()
    reader.clock.back_us = 10 * US_PER_MINUTE
    put(reader, 2, source_events[3:], minute=FIRST + 59)
    reader.clock.now_us += 10_000_000
    reader.run()
    assert len(reader.uuids()) == 6


def test_a_file_that_was_read_in_time_and_written_late_is_not_taken_for_a_late_one():
    # The worker was behind: the minute was open for it for longer.
    reader, source_events = model(), events(4)
    put(reader, 1, source_events, after_us=30 * US_PER_MINUTE)
    later(reader, 30)
    later(reader, 90)
    reader.die()
    reader.run()
    assert len(reader.uuids()) == 4


def test_files_before_the_start_are_not_read():
    reader, source_events = model(start_us=FIRST * US_PER_MINUTE), events(4)
    put(reader, 1, source_events[:2], minute=FIRST - 1, after_us=120 * US_PER_MINUTE)
    put(reader, 2, source_events[2:])
    reader.run()
    assert reader.uuids() == names(source_events[2:])


def test_a_late_event_gets_the_earliest_time_that_is_open():
    reader, source_events = model(limits=SourceLimits(lateness_us=60_000_000)), events(4)
    later(reader, 120)
    watermark_us = reader.committed.watermark_us
    put(reader, 1, source_events, minute=FIRST + 124)
    later(reader, 1)
    times = [message.value.commit_timestamp_ns // 1_000 for message, _ in reader.published]
    assert times == [watermark_us + 1] * 4
    assert reader.query._reading.counts["late_events"] == 4


def test_an_event_among_forgotten_ones_is_counted_and_named_by_its_record(monkeypatch):
    monkeypatch.setattr(object_reading, "EventTimes", functools.partial(EventTimes, kept_max=4))
    reader, source_events = model(limits=SourceLimits(lateness_us=US_PER_MINUTE)), events(12)
    for event in source_events:
        event["source_timestamp"] = (FIRST + 5) * 60_000
        event["sort_keys"][0] = event["source_timestamp"]
    put(reader, 1, source_events[2:11], minute=FIRST + 5)
    put(reader, 2, source_events[:2] + source_events[11:], minute=FIRST + 6)
    reader.run()
    assert reader.query._reading.counts["late_events"] == 2
    earliest_us = (FIRST + 5) * US_PER_MINUTE
    late = {
        uuid: earliest_us < time_and_turn(message.value.record_sequence)[0]
        for uuid, (message, _) in zip(reader.uuids(), reader.published, strict=True)
    }
    assert [late[event["uuid"]] for event in source_events] == [True] * 2 + [False] * 10


def test_an_event_from_the_future_is_released_with_its_file():
    reader, source_events = model(), events(1)
    source_events[0]["source_timestamp"] += 10**12
    source_events[0]["sort_keys"][0] += 10**12
    put(reader, 1, source_events)
    reader.run()
    ((message, _),) = reader.published
    assert message.value.commit_timestamp_ns // 1_000 == (FIRST + 1) * US_PER_MINUTE


@pytest.mark.parametrize(
    ("seed", "source"),
    [*((n, {}) for n in range(12)), *((n, {"source": "mysql"}) for n in (1, 2, 134, 208))],
)
def test_worlds_in_which_files_are_there_in_part_or_written_twice(seed, source):
    world = run_world(seed, growing=True, **source)
    assert (judge(world), world.model.dead_letters) == ([], [])


def timed(number, *, at_ms, place):
    (event,) = events(1)
    event["uuid"] = f"00000000-0000-0000-0000-{number:012d}"
    event["source_timestamp"] = event["sort_keys"][0] = FIRST * 60_000 + at_ms
    event["source_metadata"]["log_position"] = event["sort_keys"][2] = place
    return event


def put_lines(reader, number, source_events, *, cut=None):
    path = f"{ROOT}/{minute_folder(FIRST)}/{number}.jsonl"
    reader.files.put(path, json_bytes(source_events)[:cut], modified_us=reader.clock.now_us)


@pytest.mark.parametrize("dies", [False, True])
def test_a_file_that_was_read_in_parts_is_read_again_in_parts(dies):
    # The second part of the first file came after the second file, whose later change has bound it.
    first = [timed(1, at_ms=1_000, place=10), timed(2, at_ms=30_000, place=20)]
    reader = model(now_us=(FIRST + 2) * US_PER_MINUTE)
    put_lines(reader, 1, first, cut=-30)
    put_lines(reader, 2, [timed(3, at_ms=5_000, place=30)])
    reader.run()
    reader.clock.now_us += 20_000_000
    put_lines(reader, 1, first)
    reader.run()
    files = [at for name, at in reader.committed.boundary if not name.startswith(":")]
    assert sorted(files) == ["1/1,2/3", "1/2"]
    if dies:
        reader.die()
    reader.clock.now_us += 20_000_000
    put_lines(reader, 3, [timed(4, at_ms=6_000, place=25)])
    reader.run()
    released = sorted(
        (message.value.server_transaction_id, message.value.commit_timestamp_ns // 1_000)
        for message, _ in reader.published
    )
    assert [at_us - FIRST * US_PER_MINUTE for _, at_us in released] == [
        1_000_000, 5_000_000, 5_000_000, 5_000_000
    ]  # fmt: skip


def test_a_file_that_is_written_again_with_the_same_events_is_published_once():
    # Such as an object whose class of storage changes: late, while its minute is open still.
    reader, source_events = model(), events(6)
    reader.clock.now_us = (FIRST + 1) * US_PER_MINUTE
    put(reader, 1, source_events)
    reader.run()
    reader.clock.now_us += 10 * US_PER_MINUTE + 30_000_000
    put(reader, 1, source_events, after_us=10 * US_PER_MINUTE + 20_000_000)
    reader.run()
    for _ in range(3):
        later(reader, 15)
        reader.die()
    reader.run()
    assert reader.uuids() == names(source_events)
    assert reader.counts["files"] == 1


def test_an_empty_file_waits_for_what_is_written_into_it_and_goes_aside():
    reader, source_events = model(), events(4)
    reader.clock.now_us = (FIRST + 1) * US_PER_MINUTE
    put(reader, 1, source_events, data=b"")
    stays = put(reader, 2, source_events, data=b"")
    reader.run()
    put(reader, 1, source_events, after_us=5)
    reader.clock.now_us += 20_000_000
    reader.run()
    assert reader.uuids() == names(source_events)
    later(reader, 60)
    (letter,) = reader.dead_letters
    assert (letter.reason, stays in letter.content.decode()) == (FileCutShort.__name__, True)


@pytest.mark.parametrize(
    "name", ["with space", "naïve-日本", "day=1&x=%2F#?", "a'b\"c", "caf\udce9"]
)
def test_names_of_objects_and_files_may_be_any(name):
    folder = name.replace("\udce9", "é")
    reader, source_events = model(folder=f"root/{folder}"), events(4)
    path = f"root/{folder}/{minute_folder(FIRST)}/{name}.avro"
    reader.files.put(
        path, avro_bytes("mysql", source_events), modified_us=(FIRST + 1) * US_PER_MINUTE
    )
    reader.run()
    reader.die()
    reader.run()
    assert reader.uuids() == names(source_events)
    for message, _ in reader.published:
        assert message.value.transaction_tag.encode().endswith(b".avro")
    token = reader.partition.child.token
    assert object_of(token)[1] == folder
    assert slot_of(token, 4) < 4


def test_an_event_that_is_no_text_goes_aside_and_the_rest_flows():
    reader, source_events = model(), events(3)
    source_events[1]["uuid"] = "\ud800"
    put(reader, 1, source_events, data=json_bytes(source_events))
    reader.run()
    assert [letter.reason for letter in reader.dead_letters] == [InvalidEvent.__name__]
    assert reader.uuids() == [source_events[0]["uuid"], source_events[2]["uuid"]]


def test_a_file_that_stays_cut_short_goes_aside_with_its_place_and_the_rest_flows():
    reader, source_events = model(), events(40)
    data = avro_bytes("mysql", source_events[:39], per_block=600)
    path = put(reader, 1, source_events, data=data[: len(data) // 2])
    put(reader, 2, source_events[39:], minute=FIRST + 1)
    later(reader, 60)
    (letter,) = reader.dead_letters
    assert letter.reason == FileCutShort.__name__
    assert path in letter.content.decode()
    assert source_events[39]["uuid"] in reader.uuids()
    reader.die()
    reader.run()
    assert len(reader.dead_letters) == 1


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("kept", [0, 2])
def test_a_file_that_was_refused_and_is_copied_again_is_read_whole(kept, dies):
    source_events = events(6)
    reader = model(now_us=(FIRST + 11) * US_PER_MINUTE + 30_000_000)
    data = json_bytes(source_events)
    cut = sum(len(line) for line in data.splitlines(keepends=True)[:kept]) + 40
    put(reader, 1, source_events, data=data[:cut])
    for _ in range(3):  # the refusal is published once
        reader.run()
        if dies:
            reader.die()
        reader.clock.now_us += 10_000_000
    assert [letter.reason for letter in reader.dead_letters] == [FileCutShort.__name__]
    put(reader, 1, source_events, data=data, after_us=10 * US_PER_MINUTE + 50_000_000)
    for _ in range(3):
        reader.run()
        if dies:
            reader.die()
        reader.clock.now_us += 60 * US_PER_MINUTE
    reader.run()
    assert reader.uuids() == names(source_events)
    assert len(reader.dead_letters) == 1
    later(reader, 48 * 60)
    assert not [name for name, _ in reader.committed.boundary if not name.startswith(":")]


def test_a_file_that_is_refused_again_behind_more_records_is_named_again():
    source_events = events(6)
    reader = model(now_us=(FIRST + 11) * US_PER_MINUTE + 30_000_000)
    data = json_bytes(source_events)
    put(reader, 1, source_events, data=data[:40])
    reader.run()
    whole = data.splitlines(keepends=True)
    spoilt = b"".join(whole[:3]) + b"{\n" + b"".join(whole[3:])
    put(reader, 1, source_events, data=spoilt, after_us=10 * US_PER_MINUTE + 35_000_000)
    reader.clock.now_us += 10_000_000
    reader.run()
    assert [letter.reason for letter in reader.dead_letters] == ["FileCutShort", "FileDamaged"]
    assert '"record": 4' in reader.dead_letters[1].content.decode()
    assert len(reader.uuids()) == 3


def spoiled(kind):
    source_events = events(3)
    bad = source_events[1]
    match kind:
        case "method":
            bad["read_method"] = "db2-cdc"
        case "order":
            bad["source_metadata"]["log_file"] = None
            bad["sort_keys"] = [bad["sort_keys"][0]]
        case "log":
            bad["source_metadata"]["log_file"] = bad["sort_keys"][1] = "other-bin.000001"
        case "key":
            bad["source_metadata"]["primary_keys"] = ["nothing"]
        case "change type":
            bad["source_metadata"]["change_type"] = "MERGE"
    return source_events


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("method", {UnknownReadMethod.__name__}),
        ("order", {MissingSortKey.__name__, "SortKeyMismatch"}),
        ("log", {MixedSources.__name__}),
        ("key", {MissingKeyColumn.__name__}),
        ("change type", {"InvalidEvent"}),
    ],
)
def test_an_event_that_cannot_be_used_goes_aside_or_stops_the_stream_partition(kind, reasons):
    source_events = spoiled(kind)
    reader = model()
    path = put(reader, 1, source_events)
    reader.run()
    assert reader.uuids() == [source_events[0]["uuid"], source_events[2]["uuid"]]
    (letter,) = reader.dead_letters
    assert letter.reason in reasons
    assert path in letter.content.decode()
    assert '"record": 2' in letter.content.decode()
    stopping = model(parks=False)
    put(stopping, 1, source_events)
    with pytest.raises(DatastreamError) as raised:
        stopping.run()
    assert type(raised.value).__name__ in reasons
    stopping.commit()
    assert stopping.uuids() == [source_events[0]["uuid"]]
    # The event stays in its file, whatever later files have.
    stopping.die()
    put(stopping, 2, events(4)[3:], minute=FIRST + 1)
    with pytest.raises(DatastreamError):
        stopping.run()
    stopping.files.remove(path)
    stopping.die()
    stopping.run()
    assert stopping.uuids() == [source_events[0]["uuid"], events(4)[3]["uuid"]]


def test_two_sources_in_one_object():
    reader = model()
    put(reader, 1, events(3))
    put(reader, 2, events(3, "oracle"), source="oracle", minute=FIRST + 1)
    reader.run()
    assert len(reader.uuids()) == 3
    assert {letter.reason for letter in reader.dead_letters} == {MixedSources.__name__}
    other = model()  # a path of its own
    put(other, 2, events(3, "oracle"), source="oracle", minute=FIRST + 1)
    other.run()
    assert (len(other.uuids()), other.dead_letters) == (3, [])


@pytest.mark.rule("datastream-one-source")
def test_which_source_an_object_is_of_outlives_its_files():
    for other in (events(3, "oracle"), of_another_log(events(3, seed=2))):
        reader = model()
        put(reader, 1, events(3))
        reader.run()
        later(reader, 120)
        assert set(dict(reader.committed.boundary)) == {CLOSED, SOURCE}
        reader.die()
        reader.run()
        source = "oracle" if "rs_id" in other[0]["source_metadata"] else "mysql"
        put(reader, 2, other, source=source, minute=FIRST + 124)
        later(reader, 1)
        assert len(reader.uuids()) == 3
        assert [letter.reason for letter in reader.dead_letters] == [MixedSources.__name__] * 3


def test_a_position_without_a_source_learns_it_from_its_files():
    reader = model()
    put(reader, 1, events(3))
    reader.run()
    named = [(name, at) for name, at in reader.committed.boundary if name != SOURCE]
    reader.committed = dataclasses.replace(reader.committed, boundary=tuple(named))
    reader.die()
    reader.run()
    assert dict(reader.committed.boundary)[SOURCE] == "mysql/mysql-bin"
    put(reader, 2, events(3, "oracle"), source="oracle", minute=FIRST + 1)
    later(reader, 1)
    assert len(reader.uuids()) == 3


def test_a_file_of_another_writer():
    reader = model()
    put(reader, 1, [], data=b"Obj\x01" + b"nothing of Avro")
    put(reader, 2, [], data=b'{"a": 1}\n', minute=FIRST + 1)
    put(reader, 3, events(2), minute=FIRST + 2)
    later(reader, 60)
    assert len(reader.uuids()) == 2
    assert len(reader.dead_letters) == 2
    assert WrongSchema.__name__ in {letter.reason for letter in reader.dead_letters}


def test_a_file_outside_of_a_minutes_folder_stops():
    reader = model(start_us=0)
    reader.files.put(f"{ROOT}/a.avro", avro_bytes("mysql", events(1)))
    with pytest.raises(MisplacedFile, match="yyyy/mm/dd/hh/mm"):
        reader.run()
    reader.die()
    reader.files.remove(f"{ROOT}/a.avro")
    put(reader, "a", events(1))
    reader.run()
    assert reader.uuids() == [event["uuid"] for event in events(1)]


def test_two_files_with_one_name_in_the_position(monkeypatch):
    monkeypatch.setattr(file_ledger, "xxhash_64", lambda name: 3 if "3.avro" in str(name) else 7)
    reader = model()
    source_events = events(2)
    put(reader, 1, source_events[:1])
    original = put(reader, 2, source_events[1:])
    with pytest.raises(FileNamesCollide):
        reader.run()
    # Copied under another name, and the original removed, both are read.
    reader.die()
    reader.files.remove(original)
    put(reader, 3, source_events[1:])
    reader.run()
    assert sorted(reader.uuids()) == sorted(names(source_events))


def test_uuids_are_bounded_and_the_oldest_files_are_forgotten():
    reader, source_events = model(limits=SourceLimits(uuids_max=6)), events(9)
    put(reader, 1, source_events[:4])
    put(reader, 2, source_events[4:8], minute=FIRST + 1)
    put(reader, 3, source_events[8:] + source_events[:1] + source_events[7:8], minute=FIRST + 2)
    reader.run()
    assert len(reader.uuids()) == 10  # the first one again: its file's were forgotten
    assert reader.query._reading._uuids.forgotten == 4


SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "8f6a1c52-71ca-11e1-9e33-c80aa9429562")


def with_gtids(source_events, *, server=SERVERS[0], log="binlog.{:06d}", first=1):
    """Return MySQL's events as a stream has them that follows global identifiers."""
    for number, event in enumerate(source_events, first):
        metadata = event["source_metadata"]
        del metadata["log_file"], metadata["log_position"], event["sort_keys"]
        event["read_method"] = "cdc"
        metadata.update(
            gtid=f"{server}:{number}", binlog_file=log.format(900 - number), binlog_position=4
        )
    return source_events


@pytest.mark.rule("datastream-gtid-order")
def test_transactions_of_another_server_cannot_be_compared_and_are_refused_by_name():
    reader, source_events = model(), events(12)
    with_gtids(source_events[:6])
    with_gtids(source_events[6:], server=SERVERS[1])
    put(reader, 1, [], data=json_bytes(source_events))
    reader.run()
    assert len(reader.published) == 6
    assert {letter.reason for letter in reader.dead_letters} == {MixedSources.__name__}
    assert "two servers of MySQL, by their GTIDs" in reader.dead_letters[0].error


@pytest.mark.rule("datastream-gtid-order")
def test_servers_of_mysql_that_follow_one_another_have_one_order():
    source_events = events(12)
    with_gtids(source_events[:4])
    with_gtids(source_events[4:8], server=SERVERS[1])
    with_gtids(source_events[8:], first=5)
    servers = ServerOrder.of([SERVERS[0], SERVERS[1], f"{SERVERS[0]}:5"])
    reader = model(tables=TableSettings(servers=servers))
    put(reader, 1, [], data=json_bytes(source_events[6:10]))
    put(reader, 2, [], data=json_bytes(source_events[10:] + source_events[:6]), minute=FIRST + 1)
    reader.run()
    assert reader.dead_letters == []
    found = zip(reader.published, reader.rows(), strict=True)
    in_order = sorted(found, key=lambda pair: pair[0][0].value.server_transaction_id)
    rows = [row for _, row in in_order]
    assert [row["_datastream_uuid"] for row in rows] == names(source_events)
    assert [row["_datastream_tx_id"] for row in rows] == [
        event["source_metadata"]["gtid"] for event in source_events
    ]
