"""A mirror in Spark of changes that a column orders: the highest order wins, over all releases."""

from __future__ import annotations

import random

import pytest

from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "note": "STRING(MAX)", SOURCE_ORDER: "STRING(MAX)"}


def test_in_any_releases_the_mirror_ends_with_the_highest_order(kit):
    rng = random.Random(4)
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    changes, expected = [], {}
    for number in range(24):
        key = {"id": rng.randrange(3)}
        row = {"note": f"n{number}", SOURCE_ORDER: f"{number:04d}"}
        mod, new, old = rng.choice((("INSERT", row, None), ("DELETE", None, row)))
        changes.append((mod, key, new, old))
        expected[key["id"]] = {**key, **row}
    rng.shuffle(changes)
    sink = DeltaMirrorSink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=100)
    for release in range(3):
        some = [
            (topic, kit.Change(mod, key, new, old, us=1_000 * release + n))
            for n, (mod, key, new, old) in enumerate(changes[8 * release : 8 * release + 8])
        ]
        sink.write(kit.release(release, some))
    found = kit.read("mirror/t").to_pylist()
    assert {row["id"]: row for row in found} == expected
