"""Values of messages, put together from their chunks."""

import pytest
from google.cloud.spanner_v1.types import ResultSetMetadata

from tidegate.producer.spanner.chunks import Chunks, row_type
from tidegate.producer.spanner.raw_values import TEXT, content_of
from tidegate.schemas.errors import SchemaError


def texts(values):
    return [bytes(content_of(value, TEXT)).decode() for value in values]


def take(chunks, message):
    return texts(chunks.take(message.SerializeToString())[1])


def test_a_value_is_kept_until_its_rest_arrives(wire):
    chunks = Chunks()
    assert take(chunks, wire.message("a", "b", chunked=True)) == ["a"]
    assert not chunks.is_between_values
    assert chunks.unfinished_bytes == len(wire.value("b").SerializeToString())
    assert take(chunks, wire.message()) == []
    assert take(chunks, wire.message("c", chunked=True)) == []
    assert take(chunks, wire.message("d", "e")) == ["bcd", "e"]
    assert chunks.is_between_values
    assert chunks.unfinished_bytes == 0
    chunks.end()


def test_a_response_may_not_end_in_a_value(wire):
    chunks = Chunks()
    take(chunks, wire.message("a", chunked=True))
    with pytest.raises(SchemaError, match="middle of a value"):
        chunks.end()


def test_the_metadata_of_a_message(wire):
    message = wire.message(metadata=wire.JSONB_TYPE).SerializeToString()
    metadata, values = Chunks().take(message)
    assert list(values) == []
    (column,) = row_type(metadata).fields
    assert column.name == wire.JSONB_TYPE.fields[0].name
    assert Chunks().take(wire.message("a").SerializeToString())[0] == b""


@pytest.mark.parametrize("read", [row_type, Chunks().take])
def test_other_bytes_are_refused(read):
    with pytest.raises(SchemaError):
        read(b"\xff\xff")
    assert row_type(ResultSetMetadata.serialize(ResultSetMetadata())) is not None
