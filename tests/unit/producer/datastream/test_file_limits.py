"""Files that somebody made to bring a worker down: each is refused by name, and takes little."""

import bz2
import gzip
import json
import lzma
import tracemalloc
import zlib
from io import BytesIO

import pytest

from tests.unit.producer.datastream.test_avro_container import container, varint
from tidegate.producer.datastream import file_limits
from tidegate.producer.datastream.avro_container import AvroContainer
from tidegate.producer.datastream.errors import DatastreamError, FileDamaged, WrongSchema
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_limits import (
    EMPTY_MAX,
    ITEMS_MAX,
    LARGE_BYTES,
    LargeRead,
    inflated,
)

MEMORY_MAX = 100 << 20
"""What any of them may take while it is refused."""
NOTE = "note"


def field(name, kind):
    return {"name": name, "type": kind}


def record(name, *fields):
    return {"type": "record", "name": name, "fields": list(fields)}


def nested(levels):
    found = "string"
    for number in range(levels):
        found = {"type": "array", "items": found} if number % 2 else [found, "null"]
    return found


def just(some):
    """Return the bytes of a file that is only this column of records, read as a list."""
    return container(json.dumps(record("e", field(NOTE, some))).encode(), [])


SELF = record("me", field("me", "me"))
LIST = record("me", field("rest", ["null", "me"]))
HUGE_ARRAY = varint(1 << 40)
NUMBERS = varint(ITEMS_MAX + 1) + b"\x02" * (ITEMS_MAX + 1) + varint(0)


def of_column(kind, data):
    """Return a file of one record with one column, which is these bytes."""
    return container(json.dumps(record("e", field(NOTE, kind))).encode(), [(1, data)])


AVRO = {
    "a type within itself without bytes": of_column(SELF, b"\x00"),
    "a type within itself, as deep as there are bytes": of_column(LIST, b"\x02" * 59_000 + b"\x00"),
    "an array of nulls": of_column({"type": "array", "items": "null"}, HUGE_ARRAY),
    "an array of empty records": of_column({"type": "array", "items": record("r")}, HUGE_ARRAY),
    "an array of records with many nulls": of_column(
        {"type": "array", "items": record("r", field("a", "int"), field("b", "null"))}, HUGE_ARRAY
    ),
    "an array of texts without bytes": of_column(
        {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, HUGE_ARRAY
    ),
    "nulls within nulls": of_column(
        record("a", *(field(f"f{n}", record("b", *(field(f"g{m}", "null") for m in range(40)))
                            if n == 0 else "b") for n in range(40))), b"\x00",
    ),
    "many items of few bytes": of_column({"type": "array", "items": "int"}, NUMBERS),
    "types within types": just(nested(400)),
    "names within names": just(
        record("r0", *(field(f"f{n}", record(f"r{n}", field("a", f"r{n - 1}" if n > 1 else "int")))
                       for n in range(1, 400)))
    ),
    "a large head": container(b" " * (5 << 20), []),
    "blocks without a record": container(
        json.dumps(record("e", field(NOTE, "int"))).encode(), [(0, b"")] * (EMPTY_MAX + 1)
    ),
    "a large fixed": of_column({"type": "fixed", "name": "f", "size": 1 << 60}, b"1"),
    "a long text": of_column("string", varint(1 << 60) + b"1"),
}  # fmt: skip
BOMBS = {
    b"deflate": lambda data: zlib.compress(data, 9)[2:-4],
    b"bzip2": bz2.compress,
    b"xz": lzma.compress,
}


def peak_of(read):
    """Return the error that reading ends with, and the most memory that it took."""
    tracemalloc.start()
    try:
        with pytest.raises(DatastreamError) as caught:
            read()
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.rule("datastream-hostile-files")
@pytest.mark.parametrize("name", AVRO)
def test_a_hostile_file_of_avro_is_refused_by_name(name):
    error, peak = peak_of(lambda: list(AvroContainer(BytesIO(AVRO[name]), "a.avro")))
    assert isinstance(error, FileDamaged | WrongSchema)
    assert error.fields["file"] == "a.avro"
    assert peak < MEMORY_MAX


@pytest.mark.parametrize("codec", BOMBS)
def test_a_block_that_becomes_far_more_is_refused_before_it_does(codec):
    packed = BOMBS[codec](b"\x00" * (100 << 20))
    data = container(
        json.dumps(record("e", field(NOTE, "int"))).encode(), [(1, packed)], codec=codec
    )
    error, peak = peak_of(lambda: list(AvroContainer(BytesIO(data), "a.avro")))
    assert "becomes more than" in str(error)
    assert peak < MEMORY_MAX


@pytest.mark.parametrize("codec", BOMBS)
def test_a_large_block_is_announced_before_it_is_decompressed(codec):
    text = bytes(range(256)) * (LARGE_BYTES // 256) * 3
    plain = varint(len(text)) + text
    data = container(
        json.dumps(record("e", field(NOTE, "bytes"))).encode(),
        [(1, BOMBS[codec](plain))], codec=codec,
    )  # fmt: skip
    announced, (number, found) = AvroContainer(BytesIO(data), "a.avro")
    assert announced.bytes >= len(plain)
    assert (number, found) == (1, {NOTE: text})


def test_a_large_plain_block_is_announced_with_its_size():
    plain = varint(LARGE_BYTES) + b"a" * LARGE_BYTES
    data = of_column("bytes", plain)
    announced, _ = AvroContainer(BytesIO(data), "a.avro")
    assert announced == LargeRead(len(plain))


LINES = {
    "many items": b'{"a":[' + b"1," * ITEMS_MAX + b"1]}\n",
    "many empty objects": b'{"a":[' + b"{}," * ITEMS_MAX + b"1]}\n",
    "deep within": b'{"a":' + b"[" * 400 + b"]" * 400 + b"}\n",
    "deep by names": b'{"a":' * 400 + b"1" + b"}" * 400 + b"\n",
    "a long whole number": b'{"a":' + b"9" * 1_000_000 + b"}\n",
    "texts that do not end": b'{"a":[' + b"1," * ITEMS_MAX + b'"\\"' * 1_000_000 + b"\n",
    "empty lines": b"{}\n" + b"\n" * (EMPTY_MAX + 1),
}


@pytest.mark.rule("datastream-hostile-files")
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("form", [bytes, gzip.compress])
def test_a_hostile_line_is_refused_by_name(name, form):
    def read():
        for found in EventFile("a.jsonl", BytesIO(form(LINES[name]))).each():
            if isinstance(found, FileDamaged):
                raise found

    error, peak = peak_of(read)
    assert isinstance(error, FileDamaged)
    assert error.fields["file"] == "a.jsonl"
    assert peak < MEMORY_MAX


def test_commas_within_texts_are_no_items():
    line = json.dumps({"a": ',"[{' * ITEMS_MAX}).encode() + b"\n"
    assert len(line) > LARGE_BYTES
    announced, error = EventFile("a.jsonl", BytesIO(line)).each()
    assert isinstance(announced, LargeRead)
    assert isinstance(error, WrongSchema)  # it is read, and is no event


def test_compressed_lines_that_become_far_more_are_refused_where_they_do():
    data = gzip.compress(b"{}" + b" " * (300 << 20) + b"\n")

    def read():
        for _ in EventFile("a.jsonl.gz", BytesIO(data)).each():
            pass

    error, peak = peak_of(read)
    assert "250 times as many" in str(error)
    assert peak < MEMORY_MAX


def test_a_stream_that_is_inflated_can_go_back_to_its_start():
    packed = BytesIO(gzip.compress(b"abc" * 1_000))
    plain = inflated(gzip.GzipFile(fileobj=packed), packed, pytest.fail)
    assert plain.read(3) == b"abc"
    plain.seek(0)
    assert plain.read() == b"abc" * 1_000


def test_the_limits_are_those_of_what_databases_have():
    assert file_limits.DEPTH_MAX >= 100
    assert file_limits.DIGITS_MAX >= 131_072 + 16_383
