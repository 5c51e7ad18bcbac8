"""The columns of a history table."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.topics import Topic
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.change_types import change_type
from tidegate.spark_consumer.sinks.delta.history_columns import history_schema
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema


def table(*, unwatched=(), dropped=(), **columns):
    """A table whose newest schema leaves columns out of the stream, or does not have them."""
    now = {name: kind for name, kind in columns.items() if name not in dropped}
    versions = {1: {"id": "INT64"} | columns, 2: {"id": "INT64"} | now}
    topic = Topic("t", versions, ["id"], unwatched={2: unwatched})
    schemas = topic.topic_schemas()
    return SimpleNamespace(schemas=schemas, schema=change_type(schemas))


def test_ours_come_before_the_rows():
    schema = history_schema(table(at="TIMESTAMP", release="STRING(MAX)"))
    assert schema.fieldNames() == ["valid_from", "valid_to", "is_current", "id", "at", "release"]
    assert schema["valid_from"].dataType == schema["valid_to"].dataType == schema["at"].dataType


@pytest.mark.parametrize("name", ["valid_from", "Valid_To", "IS_CURRENT"])
def test_a_column_with_the_name_of_one_of_ours_is_refused(name):
    with pytest.raises(ConfigError, match=rf"table='t', columns=\['{name}'\]") as raised:
        history_schema(table(**{name: "INT64"}))
    assert "columns_left_out" in (raised.value.hint or "")
    columns = {"a": "INT64", name: "INT64"}
    left = history_schema(table(**columns, unwatched=(name,)))
    assert left.fieldNames() == ["valid_from", "valid_to", "is_current", "id", "a"]
    with pytest.raises(ConfigError):  # the topic has it still
        history_schema(table(**columns, dropped=(name,)))
    assert name in mirror_schema(table(**columns)).fieldNames()
