"""Columns of a mirror by key, and the clauses of its MERGE as text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.topics import Topic
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.change_types import change_type
from tidegate.spark_consumer.sinks.delta.key_merge import key_merge, keyed_schema


def table(**columns):
    schemas = Topic("t", {1: {"id": "INT64"} | columns}, ["id"]).topic_schemas()
    return SimpleNamespace(schemas=schemas, schema=change_type(schemas))


def test_ours_come_before_the_rows():
    assert keyed_schema(table(a="INT64")).fieldNames() == ["row_state", "order_key", "id", "a"]


@pytest.mark.parametrize("name", ["row_state", "Order_Key"])
def test_a_column_with_the_name_of_one_of_ours_is_refused(name):
    with pytest.raises(ConfigError, match=rf"table='t', columns=\['{name}'\]") as raised:
        keyed_schema(table(**{name: "INT64"}))
    assert "columns_left_out" in (raised.value.hint or "")


def test_only_a_newer_change_changes_a_row_and_only_what_it_captured():
    found = key_merge(columns=["id", "a"], keys=["id"])
    assert found.same_key == "t.`id` <=> s.key.`id`"
    assert found.is_newer == "s.order_key > t.order_key"
    assert list(found.changed) == ["`row_state`", "`order_key`", "`a`"]
    assert found.changed["`a`"] == (
        "CASE WHEN s.action = 'patch' AND NOT s.captured_1 THEN t.`a` ELSE s.value_1 END"
    )
    assert found.inserted["`id`"] == "s.key.`id`"
    assert found.inserted["`a`"] == "s.value_1"


def test_a_column_that_changes_no_longer_have_stays_until_the_row_is_deleted():
    found = key_merge(columns=["id", "a"], keys=["id"], existing=["ROW_STATE", "ID", "a", "gone"])
    assert found.changed["`gone`"] == "CASE WHEN s.action <> 'delete' THEN t.`gone` END"
    assert found.inserted["`gone`"] == "NULL"
    assert len(found.changed) == 4
