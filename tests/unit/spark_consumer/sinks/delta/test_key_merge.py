"""Columns of a mirror by key, and the clauses of its MERGE as text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.topics import Topic
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.change_types import change_type
from tidegate.spark_consumer.sinks.delta.key_merge import key_merge, keyed_schema
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema


def table(*, unwatched=(), dropped=(), **columns):
    """A table whose newest schema leaves columns out of the stream, or does not have them."""
    now = {name: kind for name, kind in columns.items() if name not in dropped}
    versions = {1: {"id": "INT64"} | columns, 2: {"id": "INT64"} | now}
    topic = Topic("t", versions, ["id"], unwatched={2: unwatched})
    schemas = topic.topic_schemas()
    return SimpleNamespace(schemas=schemas, schema=change_type(schemas))


def test_ours_come_before_the_rows():
    assert keyed_schema(table(a="INT64")).fieldNames() == [
        "row_state", "order_key", "column_updates", "id", "a",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["row_state", "Order_Key", "column_updates"])
def test_a_column_with_the_name_of_one_of_ours_is_refused(name):
    with pytest.raises(ConfigError, match=rf"table='t', columns=\['{name}'\]") as raised:
        keyed_schema(table(**{name: "INT64"}))
    assert "columns_left_out" in (raised.value.hint or "")
    columns = {"a": "INT64", name: "INT64"}
    left = keyed_schema(table(**columns, unwatched=(name,)))
    assert left.fieldNames() == ["row_state", "order_key", "column_updates", "id", "a"]
    with pytest.raises(ConfigError):  # the topic has it still
        keyed_schema(table(**columns, dropped=(name,)))
    assert name in mirror_schema(table(**columns)).fieldNames()


def test_a_row_changes_where_its_newest_change_its_base_or_a_column_is_newer():
    found = key_merge(columns=["id", "a"], keys=["id"])
    assert found.same_key == "t.`id` <=> s.key.`id`"
    newest, base, of_a = found.is_newer.split(" OR ")
    assert newest == "s.order_key > t.order_key"
    assert base.startswith("(coalesce(s.base_ordinal > ")
    assert of_a.startswith("(coalesce(coalesce(s.updated_at_1, s.base_ordinal) > ")
    assert list(found.changed) == ["`row_state`", "`order_key`", "`column_updates`", "`a`"]
    assert found.changed["`a`"] == f"CASE WHEN {of_a} THEN s.value_1 ELSE t.`a` END"
    assert found.inserted["`id`"] == "s.key.`id`"
    assert found.inserted["`a`"] == "s.value_1"


def test_a_column_that_changes_no_longer_have_stays_until_the_row_is_deleted():
    found = key_merge(columns=["id", "a"], keys=["id"], existing=["ROW_STATE", "ID", "a", "gone"])
    assert "s.action = 'delete') THEN t.`gone` END" in found.changed["`gone`"]
    assert "'gone'" in found.changed["`column_updates`"]
    assert found.inserted["`gone`"] == "NULL"
    assert len(found.changed) == 5
