"""Objects are named once each, those that appear later too."""

from types import SimpleNamespace

import pytest

from tests.datastream_folder import MemoryFiles, minute_folder
from tests.datastream_model import ModelClock
from tidegate.producer.datastream.errors import MisplacedFile
from tidegate.producer.datastream.file_store import Entry
from tidegate.producer.datastream_source.objects_query import ObjectsQuery
from tidegate.producer.datastream_source.tokens import object_token
from tidegate.producer.records import HeartbeatRecord, PartitionStartRecord

MINUTE = 28_487_519
NOW_US = (MINUTE + 100) * 60_000_000


def query_of(store, named=(), start_us=0):
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
    query = query_of(store)
    found, _ = query.step()
    assert [one.tokens for one in found[:-1]] == [(object_token(7, "a"),), (object_token(7, "b"),)]
    assert isinstance(found[-1], HeartbeatRecord)
    assert query.step() == ([], NOW_US + 1_000_000)
    store.put(f"r/c/{minute_folder(MINUTE)}/a.avro", b"")
    query.clock.now_us += 1_000_000
    found, _ = query.step()
    assert [one.tokens for one in found[:-1]] == [(object_token(7, "c"),)]


def test_folders_are_listed_though_the_wall_clock_is_set_back():
    store = store_of("a")
    query = query_of(store)
    query.step()
    store.put(f"r/b/{minute_folder(MINUTE)}/a.avro", b"")
    query.clock.now_us += 1_000_000
    query.clock.back_us = 3_600_000_000
    found, _ = query.step()
    assert [one.tokens for one in found[:-1]] == [(object_token(7, "b"),)]


def test_a_folder_may_have_any_name_of_which_a_token_can_be_made():
    names = ["a b", "naïve-日本", "day=1&x=%2F#?"]
    found, _ = query_of(store_of(*names)).step()
    assert [one.tokens for one in found[:-1]] == [(object_token(7, one),) for one in sorted(names)]
    with pytest.raises(MisplacedFile, match=r"not UTF-8.*caf\\\\udce9"):
        query_of(store_of("caf\udce9")).step()


def test_one_that_the_position_has_is_not_named_again():
    found, _ = query_of(store_of("a", "b"), named=[object_token(7, "a")]).step()
    assert [one.tokens for one in found[:-1]] == [(object_token(7, "b"),)]


def test_an_object_begins_at_the_first_time_that_is_open():
    query = query_of(store_of("a"), start_us=500)
    found, _ = query.step()
    assert found[0].start_ns == 501_000
    assert found[-1].timestamp_ns == (NOW_US - 60_000_000 + 1) * 1_000
    query.clock.now_us += 60_000_000
    query._store.put(f"r/c/{minute_folder(MINUTE)}/a.avro", b"")
    later, _ = query.step()
    assert later[0].start_ns == found[-1].timestamp_ns


def test_a_location_with_one_object_is_that_object_and_an_empty_one_has_none():
    found, _ = query_of(store_of("")).step()
    assert [one.tokens for one in found if isinstance(one, PartitionStartRecord)] == [
        (object_token(7, ""),)
    ]
    found, _ = query_of(MemoryFiles()).step()
    assert [type(one) for one in found] == [HeartbeatRecord]


@pytest.mark.parametrize("there", [[], [Entry(".staging", "r/.staging", is_folder=True)]])
def test_a_location_is_no_object_because_its_first_folder_comes_while_it_is_listed(there):
    store = store_of("a")
    listings = [there]
    store.entries = lambda folder: (
        listings.pop() if listings else MemoryFiles.entries(store, folder)
    )
    query = query_of(store)
    found, _ = query.step()
    assert [type(one) for one in found] == [HeartbeatRecord]
    query.clock.now_us += 1_000_000
    found, _ = query.step()
    assert [one.tokens for one in found[:-1]] == [(object_token(7, "a"),)]
