"""Files that any reader of Avro or JSON reads, and that are the same bytes each time."""

import gzip
from io import BytesIO

import fastavro
import pytest

from tidegate.producer.datastream.avro_container import AvroContainer
from tidegate.spark_consumer.sinks.datastream.file_bytes import avro_file, json_file

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}


def records_of(texts):
    found = []
    for text in texts:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA), {"a": text})
        found.append(buffer.getvalue())
    return found


@pytest.mark.parametrize("texts", [[], ["x"], [f"{n}-{'y' * 999}" for n in range(200)]])
def test_an_avro_file_is_read_by_two_readers(texts):
    data = avro_file(records_of(texts), SCHEMA, name="n")
    assert [one["a"] for one in fastavro.reader(BytesIO(data))] == texts
    ours = AvroContainer(BytesIO(data), "f")
    assert ours.schema == SCHEMA
    assert [one["a"] for _, one in ours] == texts
    reader = fastavro.block_reader(BytesIO(data))
    assert all(block.num_records <= 66 for block in reader)
    assert reader.codec == "null"


def test_a_file_is_the_same_each_time_and_its_marker_that_of_its_name():
    data = avro_file(records_of(["x"]), SCHEMA, name="n")
    assert data == avro_file(records_of(["x"]), SCHEMA, name="n")
    assert data[-16:] != avro_file(records_of(["x"]), SCHEMA, name="m")[-16:]


def test_json_lines_plain_and_with_gzip():
    lines = [b'{"a":1}\n', b'{"a":2}\n']
    plain = json_file(lines, is_compressed=False)
    assert plain == b'{"a":1}\n{"a":2}\n'
    packed = json_file(lines, is_compressed=True)
    assert gzip.decompress(packed) == plain
    assert packed == json_file(lines, is_compressed=True)
    assert packed[4:8] == bytes(4)  # no time of writing in it
