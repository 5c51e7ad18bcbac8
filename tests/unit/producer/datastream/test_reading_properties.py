"""What a stream delivers, read from its files and sorted, is what the source did, once each.

The generator follows the documentation: changes come out of order, some twice, with rows of a
backfill between them, in files of several minutes.
"""

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datastream_files import (
    ADDED_COLUMN,
    SOURCES,
    backfill,
    delivered,
    history,
    write_stream,
)
from tests.datastream_table import drawn_table
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


@pytest.mark.rule(
    "datastream-rows-without-key",
    "datastream-row-history",
    "datastream-arrival",
    "datastream-copies",
)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", ["avro", "jsonl", "jsonl.gz"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_sorted_by_key_and_without_copies_it_is_the_sources_history(
    tmp_path_factory, source, form, seed
):
    rng = random.Random(seed)
    table = drawn_table(source, rng, changes=40, rows=6)
    folder = tmp_path_factory.mktemp("stream")
    write_stream(folder, source, delivered(table.changes, table.backfill, rng), form=form)

    events = {one.uuid: one for one in read_all(folder)}
    in_order = sorted(events.values(), key=lambda one: (one.order_key, one.position))
    later = [one for one in in_order if one.order_key != BACKFILL_KEY]

    read = {one.uuid for one in in_order[: len(table.backfill)]}
    assert read == {one["uuid"] for one in table.backfill}
    places = [table.places[one.uuid] for one in later]
    assert places == sorted(places)
    assert len(places) == len(table.changes)
    assert of_keys((one.payload["id"], one.uuid) for one in later) == of_keys(
        (one["payload"]["id"], one["uuid"]) for one in table.changes
    )
    rows = {}
    for one in in_order:
        rows.pop(one.payload["id"], None)
        if not one.is_deleted:
            rows[one.payload["id"]] = content(one.payload)
    assert rows == {key: content(row) for key, row in table.rows.items()}
    assert {one.key is not None for one in in_order} == {table.clauses.has_key}


def of_keys(pairs):
    found = defaultdict(list)
    for key, uuid in pairs:
        found[key].append(uuid)
    return found


def content(row):
    return row["note"], row.get(ADDED_COLUMN)


@pytest.mark.parametrize("source", SOURCES)
def test_tables_of_the_generator_meet_the_clauses_of_the_documentation(source):
    met, changes, key_fields = Counter(), [], set()
    for seed in range(40):
        table = drawn_table(source, random.Random(seed), changes=40, rows=6)
        met += table.met
        changes += table.changes
        key_fields |= {field for field, key in table.clauses.key_fields.items() if key}
    expected = {"column added", "without a key", "fields in another order"}
    if source != "salesforce":
        expected |= {"key updated", "reverse operations"}
    expected |= {
        "mysql": {"rows that follow each other"},
        "oracle": {"supplementation", "oracle-supplementation"},
        "postgresql": {"postgres-cdc-wal", "postgresql-cdc"},
    }.get(source, set())
    assert set(met) - {"no other method"} == expected
    assert key_fields == {"primary_keys", *(["replication_index"] if source == "sqlserver" else [])}
    halves = [one for one in changes if one["source_metadata"]["change_type"] == "UPDATE-DELETE"]
    assert bool(halves) == (source in ("mysql", "oracle"))


def test_both_halves_of_an_update_of_a_key_are_at_one_place_of_the_log():
    table = drawn_table("mysql", random.Random(1), changes=200, rows=6)
    seen = 0
    for one, other in pairwise(table.changes):
        if one["source_metadata"]["change_type"] == "UPDATE-DELETE":
            seen += 1
            assert other["source_metadata"]["change_type"] == "UPDATE-INSERT"
            assert one["sort_keys"][1:] == other["sort_keys"][1:]
            assert one["payload"]["id"] != other["payload"]["id"]
    assert seen > 10


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
