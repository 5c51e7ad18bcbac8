"""What a stream delivers, read from its files and sorted, is what the source did, once each.

The generator follows the documentation: changes come out of order, some twice, with rows of a
backfill between them, in files of several minutes.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datastream_files import SOURCES, backfill, delivered, history, write_stream
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.file_tree import all_files, object_folders
from tidegate.producer.datastream.order_key import BACKFILL_KEY


def read_all(location):
    store = LocalStore()
    for folder in object_folders(store, str(location)):
        for one in all_files(store, folder):
            with store.open(one.path) as stream:
                yield from EventFile(one.path, stream)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", ["avro", "jsonl", "jsonl.gz"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_sorted_by_key_and_without_copies_it_is_the_sources_history(
    tmp_path_factory, source, form, seed
):
    rng = random.Random(seed)
    changes, rows = history(source, rng, 40), backfill(source, rng, 6)
    folder = tmp_path_factory.mktemp("stream")
    write_stream(folder, source, delivered(changes, rows, rng), form=form)

    events = {one.uuid: one for one in read_all(folder)}
    in_order = sorted(events.values(), key=lambda one: (one.order_key, one.position))
    later = [one for one in in_order if one.order_key != BACKFILL_KEY]

    assert {one.uuid for one in in_order[: len(rows)]} == {one["uuid"] for one in rows}
    assert [one.uuid for one in later] == [one["uuid"] for one in changes]
    assert [one.is_deleted for one in later] == [
        one["source_metadata"]["is_deleted"] for one in changes
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_what_the_generator_delivers_is_out_of_order_and_partly_twice(source):
    rng = random.Random(11)
    changes, rows = history(source, rng, 60), backfill(source, rng, 6)
    found = delivered(changes, rows, rng)
    uuids = [one["uuid"] for one in found]

    assert len(uuids) > len(set(uuids)) == 66
    assert [one for one in uuids if not one.startswith("aaaa")][:60] != [
        one["uuid"] for one in changes
    ]
    kinds = ["backfill" in one["read_method"] for one in found]
    assert kinds.index(False) < len(kinds) - kinds[::-1].index(True)
