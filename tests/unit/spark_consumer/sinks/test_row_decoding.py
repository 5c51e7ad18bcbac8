"""Rows decoded one by one: what Spark's decoding refuses is refused here too."""

from __future__ import annotations

import pytest

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.errors import UndecodableRecord
from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.row_decoding import decode_rows, find_undecodable

NAMES = [column.split()[0] for column in ROWS_SCHEMA.split(", ")]
COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "at": "TIMESTAMP", "u": "UUID"}


@pytest.fixture
def topic():
    return Topic("t", {1: COLUMNS, 2: COLUMNS | {"b": "INT64"}}, ["id"])


def row(topic, change, **replaced):
    return dict(zip(NAMES, topic.row(change, ordinal=0), strict=True)) | replaced


def decoded(topic, *rows):
    return decode_rows(rows, topic.topic_schemas(), release=7)


def test_values_are_the_numbers_that_avro_stores(topic):
    one = row(topic, Change("INSERT", {"id": 1}, {"a": "x"}, us=5))
    (found,) = decoded(topic, one)
    assert tuple(found) == CHANGE_COLUMNS
    assert found["value_bytes"] == len(one["value"])
    assert (found["release"], found["commit_timestamp"], found["key"]) == (7, 5, {"id": 1})
    assert found["new_values"] == {"id": 1, "a": "x", "at": None, "u": None, "b": None}


def test_all_columns_of_an_older_writer_are_spelled_out(topic):
    every = dict.fromkeys(["a", "at", "u"])
    (older,) = decoded(topic, row(topic, Change("INSERT", {"id": 1}, every, value_id=1)))
    (newer,) = decoded(topic, row(topic, Change("INSERT", {"id": 1}, every | {"b": 1})))
    (deleted,) = decoded(topic, row(topic, Change("DELETE", {"id": 1}, None, value_id=1)))
    assert older["new_columns"] == ["id", "a", "at", "u"]
    assert (newer["new_columns"], deleted["new_columns"]) == (None, None)


def test_the_stream_partition_of_an_older_value_is_the_hash_of_its_token(topic):
    change = Change("DELETE", {"id": 1}, None, is_older=True)
    (found,) = decoded(topic, row(topic, change))
    assert found["origin"] == change.origin
    unnamed = Change("DELETE", {"id": 1}, None, is_older=True, token="")
    with pytest.raises(SchemaError, match="no stream partition"):
        decoded(topic, row(topic, unnamed))


def test_rows_without_a_value_are_left_out(topic):
    assert decoded(topic, row(topic, Change("DELETE", {"id": 1}), value=None)) == []


@pytest.mark.parametrize("hidden", [2, 100])
def test_a_schema_id_that_the_plan_lacks_is_named(topic, hidden):
    topic.hidden_ids = {hidden}
    with pytest.raises(SchemaError, match=rf"plan does not name.*{hidden}"):
        decoded(topic, row(topic, Change("INSERT", {"id": 1}, {"a": "x"})))


@pytest.mark.parametrize("end", [6, 8, 20, -1])
def test_bytes_that_do_not_fit_their_schema_are_named(topic, end):
    whole = row(topic, Change("INSERT", {"id": 1}, {"a": "x"}))
    with pytest.raises(SchemaError, match=r"does not fit.*offset=1"):
        decoded(topic, whole | {"value": whole["value"][:end]})


def test_a_value_without_confluents_header_is_refused(topic):
    with pytest.raises(SchemaError, match=r"does not begin with a schema id.*offset=1"):
        decoded(topic, row(topic, Change("DELETE", {"id": 1}), value=b"\x01abc"))


def test_the_rows_that_are_refused_are_found_and_no_other(topic):
    good = row(topic, Change("INSERT", {"id": 1}, {"a": "x"}))
    faulty = [good | {"offset": 2, "value": b"\x01abc"}, good | {"offset": 3, "origin": None}]
    found = find_undecodable([good, *faulty, good | {"value": None}], topic.topic_schemas())
    assert [(one["offset"], type(error)) for one, error in found] == [
        (2, UndecodableRecord), (3, UndecodableRecord),
    ]  # fmt: skip
