"""A small release's table: a frame is made when somebody asks, and once."""

from __future__ import annotations

from tests.topics import Topic
from tidegate.spark_consumer.sinks.collected_table import CollectedTable


def test_a_frame_is_made_once_and_only_if_it_is_asked_for():
    made = []

    def make():
        made.append(1)
        return object()

    schemas = Topic("t", {1: {"id": "INT64"}}, ["id"]).topic_schemas()
    one = CollectedTable(None, make, [{"ordinal": 0}], schemas)
    assert (one.rows, one.schema["key"].dataType.fieldNames(), made) == (1, ["id"], [])
    assert one.frame is one.frame
    assert made == [1]
