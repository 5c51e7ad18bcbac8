"""A query with every sink, killed between any two steps of a batch, writes what it does unkilled.

Each step is announced before it is done.  So a kill there comes after the effect of the step
before it, and between any two sinks.  A kill within a step is the subject of each sink's own tests.

One batch is killed many times, each time one step later, so that each of its processes finds what
all former ones have left.
"""

import json
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import get_args

import pytest

from tests.spark.all_sinks import (
    ALL,
    BATCH,
    ICEBERG,
    READ,
    RELEASED_US,
    ROWS,
    SINKS,
    WAITING,
    AllSinks,
    Killed,
    Places,
    write,
)
from tidegate.schemas.topics import HEADER_ORDER
from tidegate.spark_consumer.batch import batch as batch_module
from tidegate.spark_consumer.core.batch_effects import BatchEffect
from tidegate.spark_consumer.core.sink_names import MIRRORS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2_400)]

TAKERS = tuple(name for name in ALL if name == "batches" or name.endswith("_by_key"))
WRITES = tuple(f"WriteRelease sink-{name}" for name in ALL)
MERGES = tuple(f"MergeMirror sink-{name}" for name in MIRRORS if name in ALL)
EFFECTS = (
    "StoreSchemas plan",
    "StoreFrontier plan",
    "StorePlan plan",
    *(f"HandOver hand-over-{name}" for name in TAKERS),
    "StoreDeadLetters dead-letters",
    "StoreDeadLetters dead-letters of a release",
    "SetLateAside late",
    *MERGES,
    "MergeMirror manifest",
    *WRITES,
    "WriteRelease manifest",
    "StoreSegment pending",
    "CompactSegments pending",
    "StoreState state",
    "DeleteFiles load",
    "DropManifests drop-manifests",
)
"""The steps that change something outside of the process."""
LOOKS = {
    "LoadState load",
    "LoadPlan load",
    "LoadFrontier load",
    "ReadProgress plan",
    "ReadMoreProgress plan",
    "CountChanges plan",
    "CountRelease release",
    "DescribeTopics plan",
    "InspectSegments inspect",
}
"""Those that change nothing: a kill after one is as one before it."""
PARTS = 9
"""Each is the batch begun from where it was, and killed at every ninth of its steps."""


def run(world, places):
    """Run the batch in a new process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "EffectLoop", places.loop)
        world.ask(world.start(), BATCH)


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """The world, what the batch leaves in it without a kill, and the steps of the batch."""
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable
    if ICEBERG and not loads("org.apache.iceberg.spark.SparkCatalog"):
        pytest.skip("Iceberg's jar is not fetched: ./dev setup")
    with pytest.MonkeyPatch.context() as patch:
        world = AllSinks(spark, tmp_path_factory.mktemp("all"), patch)
        write(world)
        batch = world.start()
        for number in range(BATCH):
            world.ask(batch, number)
        world.sinks = SINKS
        world.merge_every(0)
        world.save()
        places = Places()
        run(world, places)
        yield world, world.content(), places.seen


def test_the_batch_has_every_step_of_every_sink(whole):
    _, _, seen = whole
    assert {step for step in seen if step not in LOOKS} == {*EFFECTS, Places.END}
    assert {step.split()[0] for step in (*EFFECTS, *LOOKS)} == {
        effect.__name__ for effect in get_args(BatchEffect)
    }


def test_without_a_kill_every_sink_has_each_change_once(whole):
    _, content, _ = whole
    delta, iceberg, called = content["delta"], content["iceberg"], content["called"]
    changes = [row for table in ROWS for row in delta[f"changelog/{table}"]]
    changes.sort(key=place)
    places, keys = [place(row) for row in changes], [row["order_key"] for row in changes]
    assert [int.from_bytes(key[:8], "big") for key in keys] == list(RELEASED_US)
    for _, of_release in groupby(places, key=itemgetter(0)):
        ordinals = [ordinal for _, ordinal in of_release]
        assert ordinals == list(range(len(ordinals)))

    if ICEBERG:
        of_iceberg = [row for table in ROWS for row in iceberg["iceberg_changelog", table]]
        assert sorted(map(place, of_iceberg)) == places
    assert [
        place(json.loads(row)) for rows in called["function"].values() for row in rows
    ] == places
    assert in_transactions(delta["transactions"]) == places
    events = [event for events in content["files"].values() for event in events]
    assert sorted(event["sort_keys"][1] for event in events) == list(RELEASED_US)
    assert len({event["uuid"] for event in events}) == len(events)
    (records,), releases = content["topic"]
    assert [dict(headers)[HEADER_ORDER] for *_, headers in records] == keys
    assert releases == sorted({release for release, _ in places})
    assert [len(delta[name]) for name in ("late", "dead_letters")] == [1, 2]

    for table, rows in ROWS.items():
        for found in (
            delta[f"mirror/{table}"],
            [row for row in delta[f"history/{table}"] if row["is_current"]],
            *(iceberg[name, table] for name in ICEBERG[1:]),
        ):
            assert sorted((row["id"], row["t"]) for row in found) == sorted(rows.items())


def test_without_a_kill_every_sink_by_key_has_what_was_read_once(whole):
    _, content, _ = whole
    handed = [json.loads(row) for rows in content["called"]["batches"].values() for row in rows]
    assert len({row["order_key"] for row in handed}) == READ - 1
    read = sorted(offset(row["table"], row) for row in handed)
    assert (len(read), len(set(read))) == (READ, READ)
    delta, folders = content["delta"], content["by key"]
    assert read == sorted(
        offset(table, row) for table in ROWS for row in delta[f"changelog_by_key/{table}"]
    )
    assert read == sorted(
        offset(folder.split("/")[1], row) for folder, rows in folders.items() for row in rows
    )
    for table, rows in ROWS.items():
        states = defaultdict(dict)
        for row in delta[f"mirror_by_key/{table}"]:
            states[row["row_state"]][row["id"]] = row["t"]
        assert states.pop("present") == {**rows, **WAITING[table]}
        assert states == ({"deleted": {1: None}} if table == "accounts" else {})


def test_a_sink_that_joins_has_the_releases_from_then_on(whole):
    """The folders that the manifests name; those of earlier releases are no longer kept."""
    world, content, _ = whole
    kept = list(content["manifests"])
    changes = [row for table in ROWS for row in content["delta"][f"changelog/{table}"]]
    places = sorted(place(row) for row in changes if row["release"] in kept)
    rows = defaultdict(list)
    for folder, found in content["parquet"].items():
        rows[folder.split("/")[0]] += found
    assert sorted(map(place, rows["parquet"])) == places
    begun = json.loads(content["state"])["begins"]
    assert set(begun) == {"parquet_transactions"}
    later = [one for one in places if one[0] >= begun["parquet_transactions"]]
    assert in_transactions(rows["parquet_transactions"]) == later
    assert later
    folders = (world.folder / "output" / "parquet_transactions").glob("0*")
    assert min(int(one.name) for one in folders) == begun["parquet_transactions"]


@pytest.mark.rule("P5")
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.deep) for part in range(1, PARTS))]
)
def test_killed_after_each_step_in_turn_the_batch_leaves_the_same(whole, part):
    world, expected, seen = whole
    kills = sorted(EFFECTS, key=last_of(seen))
    world.load()
    for step in kills[part::PARTS]:
        places = Places(step, seen)
        with pytest.raises(Killed):
            run(world, places)
        assert places.seen[-2] == step
        assert places.seen[-1] == seen[last_of(seen)(step) + 1]
    run(world, Places())
    found = world.content()
    assert set(found) == set(expected)
    for name, content in expected.items():
        assert found[name] == content, name


def last_of(seen):
    """Return the place of a step's last occurrence."""
    return {step: n for n, step in enumerate(seen)}.__getitem__


def place(row):
    return row["release"], row["ordinal"]


def offset(table, row):
    return table, row["batch"], row["topic_partition"], row["offset"]


def in_transactions(rows):
    """Return the places of changes in rows of transactions, in the order of both."""
    found = sorted(rows, key=lambda row: (row["release"], row["first_ordinal"]))
    return [(row["release"], one["ordinal"]) for row in found for one in row["changes"]]
