"""Listings from a minute on."""

import random

import pytest

from tests.datastream_folder import MemoryFiles, minute_folder
from tidegate.producer.datastream.errors import MisplacedFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream_source import listing

MINUTE = 28_487_519


def files_from(*place, **minutes):
    return [file for found in listing.files_from(*place, **minutes) for file in found]


def store_of(minutes):
    store = MemoryFiles()
    for number, minute in enumerate(minutes):
        store.put(f"r/o/{minute_folder(minute)}/{number}.avro", b"", modified_us=number)
    return store


@pytest.mark.parametrize("span", [1, 100, 2_000, 2_000_000])
def test_every_file_from_the_minute_on_is_found_and_none_before(span):
    rng = random.Random(span)
    minutes = [MINUTE + rng.randrange(-span, span) for _ in range(60)] + [MINUTE, MINUTE - 1]
    found = files_from(store_of(minutes), "r/o", from_minute=MINUTE, now_minute=MINUTE + span)
    assert sorted(one.minute for one in found) == sorted(m for m in minutes if m >= MINUTE)


def test_a_short_span_costs_a_listing_for_each_hour():
    store = store_of(range(MINUTE - 3_000, MINUTE + 5))
    files_from(store, "r/o", from_minute=MINUTE - 10, now_minute=MINUTE)
    assert len(store.listed) <= 3


def test_a_listing_comes_in_parts_of_one_folder():
    store = store_of(range(MINUTE - 60 * 24 * 40, MINUTE, 60))
    looked, entries = [], store.entries
    store.entries = lambda folder: looked.append(folder) or entries(folder)
    first = MINUTE - 60 * 24 * 40
    parts = listing.files_from(store, "r/o", from_minute=first, now_minute=MINUTE)
    for number, _ in enumerate(parts, 1):
        assert len(looked) + len(store.listed) == number
    assert len(store.listed) == 24 * 40


def test_other_files_are_passed_over():
    store = store_of([MINUTE])
    store.put(f"r/o/{minute_folder(MINUTE)}/.hidden.avro", b"")
    store.put(f"r/o/{minute_folder(MINUTE)}/notes.txt", b"")
    found = files_from(store, "r/o", from_minute=MINUTE, now_minute=MINUTE)
    assert [one.path[-6:] for one in found] == ["0.avro"]


def test_a_file_outside_of_the_folders_of_minutes_is_refused():
    store = store_of([MINUTE])
    store.put("r/o/a.avro", b"")
    with pytest.raises(MisplacedFile):
        files_from(store, "r/o", from_minute=0, now_minute=MINUTE)
    hour = minute_folder(MINUTE).rpartition("/")[0]
    deep = store_of([MINUTE])
    deep.put(f"r/o/{hour}/a.avro", b"")
    with pytest.raises(MisplacedFile):
        files_from(deep, "r/o", from_minute=MINUTE, now_minute=MINUTE)


def test_an_object_whose_files_are_gone_has_none(tmp_path):
    for first in (0, MINUTE):
        found = files_from(
            LocalStore(), str(tmp_path / "gone"), from_minute=first, now_minute=MINUTE
        )
        assert found == []


def test_a_local_folder_says_when_a_file_was_written(tmp_path):
    place = tmp_path / minute_folder(MINUTE)
    place.mkdir(parents=True)
    (place / "a.avro").write_bytes(b"x")
    (one,) = files_from(LocalStore(), str(tmp_path), from_minute=MINUTE, now_minute=MINUTE)
    assert one.modified_us == (place / "a.avro").stat().st_mtime_ns // 1_000
