"""Types from Avro's schemas: those that Spark's decoding gives."""

from __future__ import annotations

import pytest

from tests.spark.sinks.delta.test_direct_way import COLUMNS
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.sinks.change_types import change_type
from tidegate.spark_consumer.sinks.delta.tables import as_nullable

pytestmark = pytest.mark.spark


def test_the_types_are_those_of_the_decoded_frame(kit):
    topic = kit.Topic("t", {1: COLUMNS, 2: {**COLUMNS, "added": "ARRAY<BOOL>"}}, ["n", "id"])
    one = kit.release(0, [], topics=[topic]).tables["bank.t"]
    assert as_nullable(change_type(one.schemas)) == as_nullable(one.frame.schema)


def test_a_type_that_no_change_has_is_refused(kit):
    topic = kit.Topic("t", {1: {"id": "INT64"}}, ["id"])
    topic.key_schema = {"type": "record", "name": "Key", "fields": [{"name": "a", "type": "Who"}]}
    with pytest.raises(SchemaError, match="Who"):
        change_type(topic.topic_schemas())
