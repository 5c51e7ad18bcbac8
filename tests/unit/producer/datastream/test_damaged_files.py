"""Files of Avro and JSON: cut, damaged and hostile ones are refused by name."""

import bz2
import gzip
import json
import lzma
import random
import tracemalloc
import zlib
from decimal import Decimal
from io import BytesIO

import fastavro
import pytest
from fastavro import _read_py

from tests.datastream_files import SOURCES, avro_bytes, history, schema_of
from tidegate.producer.datastream import event_file, file_limits
from tidegate.producer.datastream.avro_container import MAGIC, AvroContainer, contains_itself
from tidegate.producer.datastream.errors import (
    DatastreamError,
    FileCutShort,
    FileDamaged,
    InvalidEvent,
    WrongSchema,
)
from tidegate.producer.datastream.event_file import EventFile, json_lines
from tidegate.producer.datastream.file_limits import EMPTY_MAX, ITEMS_MAX, LARGE_BYTES, LargeRead

EVENTS = history("postgresql", random.Random(3), 12)
SYNC = bytes(range(16))
WHOLE = avro_bytes("postgresql", EVENTS, per_block=900)


def varint(number):
    """Return a number in Avro's zig-zag notation."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


def read_avro(data):
    return list(AvroContainer(BytesIO(data), "a.avro"))


def container(schema, blocks, *, codec=b"null"):
    """Return a container by hand; each block is (count, bytes)."""
    head = MAGIC + varint(2)
    for name, value in ((b"avro.schema", schema), (b"avro.codec", codec)):
        head += varint(len(name)) + name + varint(len(value)) + value
    head += varint(0) + SYNC
    return head + b"".join(
        varint(count) + varint(len(data)) + data + SYNC for count, data in blocks
    )


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("per_block", [0, 100, 900])
def test_records_have_numbers_from_one_and_values_without_logical_types(codec, per_block):
    data = avro_bytes("postgresql", EVENTS, codec=codec, per_block=per_block)
    assert read_avro(data) == list(enumerate(EVENTS, 1))


@pytest.mark.rule("datastream-cut-files")
def test_a_file_cut_anywhere_is_noticed_unless_it_ends_between_two_blocks():
    ends = [n + 16 for n in range(len(WHOLE)) if WHOLE[n : n + 16] == SYNC]
    assert len(ends) > 3
    for end in range(len(WHOLE)):
        if end in ends:
            assert len(read_avro(WHOLE[:end])) < len(EVENTS)
        else:
            with pytest.raises(FileCutShort, match=r"file='a\.avro'"):
                read_avro(WHOLE[:end])


def test_a_file_that_ends_within_the_count_of_a_block_is_no_whole_one():
    """The reason why blocks are read here: fastavro without its compiled part takes it for one."""
    cut = container(STRINGS, [(200, b"\x02x" * 200)])[: len(HEAD) + 1]
    assert list(_read_py.reader(BytesIO(cut))) == []
    with pytest.raises(FileCutShort, match="record=0"):
        read_avro(cut)


@pytest.mark.rule("datastream-large-files")
def test_one_block_is_in_memory_at_a_time():
    """The stream is read no further than the block of the record that was taken."""
    stream = BytesIO(WHOLE)
    records = iter(AvroContainer(stream, "a"))
    next(records)
    assert stream.tell() < 0.6 * len(WHOLE)


STRINGS = b'{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
HEAD = container(STRINGS, [])
DEFLATED = avro_bytes("postgresql", EVENTS, codec="deflate")
PACKED_AT = DEFLATED.index(SYNC) + 20


@pytest.mark.rule("datastream-cut-files")
@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (container(STRINGS, [(1, b"\x02")]), FileDamaged, "not of the file's schema"),
        (container(STRINGS, [(1, b"\x02xx")]), FileDamaged, "more than its records"),
        (container(STRINGS, [(2, b"\x02x")]), FileDamaged, "a record is not of|block of 2"),
        (container(STRINGS, [(-1, b"\x02x")]), FileDamaged, "block of -1"),
        (container(STRINGS, [(10**9, b"\x02x")]), FileDamaged, "block of 1000000000"),
        (container(STRINGS, [(1, b"\x02\xff")]), FileDamaged, "not of the file's schema"),
        (HEAD + varint(1) + varint(2**40), FileDamaged, "1099511627776 bytes"),
        (HEAD + b"\xff" * 11, FileDamaged, "64 bits"),
        (WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]), FileDamaged, "sync marker"),
        (container(b"{}", []), WrongSchema, "not one of Avro"),
        (container(b'{"type":"nonsense"}', []), WrongSchema, "not one of Avro"),
        (container(b"not JSON", []), FileDamaged, "not JSON"),
        (
            container(b'"string"', [], codec=b"snappy"), WrongSchema,
            "'snappy', which is not one of bzip2, deflate",
        ),
        (MAGIC + varint(0) + SYNC, FileDamaged, "no avro.schema"),
        (MAGIC + varint(1) + varint(2**33), FileDamaged, "head is larger"),
        (b"Obj\x02" + SYNC, FileDamaged, "does not begin"),
        (
            DEFLATED[:PACKED_AT] + b"\xff\xff\xff" + DEFLATED[PACKED_AT + 3 :], FileDamaged,
            "cannot be decompressed",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_a_damaged_file_of_avro_is_refused(data, kind, message):
    """A block that claims to be huge allocates nothing."""
    with pytest.raises(kind, match=message):
        read_avro(data)


def read_lines(data):
    return list(json_lines(BytesIO(data), "a.jsonl"))


def test_records_have_the_numbers_of_their_lines():
    found = read_lines(b'{"a":1}\n\n{"a":2}\r\n{"a":3}')
    assert found == [(1, {"a": 1}), (3, {"a": 2}), (4, {"a": 3})]
    assert read_lines(b"") == []


@pytest.mark.parametrize("size", range(LARGE_BYTES - 2, LARGE_BYTES + 4))
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_large_line_ends_where_it_ends(size, end):
    line = b'{"a":"' + b"x" * (size - 8 - len(end)) + b'"}' + end
    assert len(line) == size
    found = [one for one in read_lines(line * 2 + b"{}") if not isinstance(one, LargeRead)]
    assert [number for number, _ in found] == [1, 2, 3]


@pytest.mark.rule("datastream-json-values")
def test_numbers_keep_all_their_digits():
    ((_, found),) = read_lines(b'{"a":12345678901234567890.123456789,"b":18446744073709551616}\n')
    assert found == {"a": Decimal("12345678901234567890.123456789"), "b": 2**64}


@pytest.mark.rule("datastream-cut-files")
def test_a_file_cut_anywhere_in_a_line_is_noticed():
    whole = '{"a":{"b":"é"}}\n'.encode() * 3
    starts = [n * len(whole) // 3 for n in range(4)]
    for end in range(len(whole)):
        if end in starts or end + 1 in starts:
            assert len(read_lines(whole[:end])) == (end + 1) * 3 // len(whole)
        else:
            with pytest.raises(FileCutShort, match="record="):
                read_lines(whole[:end])


@pytest.mark.rule("datastream-cut-files")
@pytest.mark.parametrize(
    "line", [b"[1]", b"1", b"null", b"{,}", b'{"a":NaN}', b"\xff\xfe{}", b"[" * 100_000]
)
def test_a_line_that_is_not_an_object_is_damage(line):
    with pytest.raises(FileDamaged, match="record=2"):
        read_lines(b"{}\n" + line + b"\n")


def test_a_text_with_half_a_surrogate_pair_is_an_event_of_its_own_that_cannot_be_used():
    pair, half = rb'{"a":"\ud83d\ude00"}', rb'{"a":{"b":["\uDE00"]}}'
    (_, first), (number, error), (_, last) = read_lines(pair + b"\n" + half + b"\n" + pair)
    assert first == last == {"a": "\N{GRINNING FACE}"}
    assert isinstance(error, InvalidEvent)
    assert (number, error.fields["record"]) == (2, 2)


@pytest.mark.rule("datastream-large-files")
def test_a_line_without_end_is_read_no_further_than_its_limit(monkeypatch):
    monkeypatch.setattr(event_file, "LARGE_BYTES", 10)
    monkeypatch.setattr(event_file, "LINE_BYTES_MAX", 100)
    stream = BytesIO(b"x" * 10_000)
    lines = json_lines(stream, "a.jsonl")
    assert next(lines) == LargeRead(100)
    assert stream.tell() == 11  # what is announced is not read before
    with pytest.raises(FileDamaged, match="more than 100 bytes"):
        next(lines)
    assert stream.tell() == 101


def field(name, kind):
    return {"name": name, "type": kind}


def record(name, *fields):
    return {"type": "record", "name": name, "fields": list(fields)}


def column(kind):
    return fastavro.parse_schema(record("e", field("a", kind)))


def record_of(*kinds, name="r"):
    return record(name, *(field(f"f{n}", kind) for n, kind in enumerate(kinds)))


ARRAY = {
    "type": "record", "name": "multidimensionalArray_a",
    "fields": [
        {"name": "nestedArray",
         "type": ["null", {"type": "array", "items": "multidimensionalArray_a"}]},
        {"name": "elementValue", "type": ["null", "int"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ARRAY, True),
        (["null", ARRAY], True),
        (record_of("int", record_of("string", name="s")), False),
        ({"type": "array", "items": ["null", "int"]}, False),
        ({"type": "map", "values": {"type": "enum", "name": "m", "symbols": ["a"]}}, False),
        (record_of("int", *["null"] * 900), False),
    ],
)
def test_a_type_that_contains_itself_is_known(kind, expected):
    assert contains_itself(column(kind)) is expected
    assert not any(contains_itself(fastavro.parse_schema(schema_of(one))) for one in SOURCES)


@pytest.mark.rule("datastream-hostile-files")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ({"type": "array", "items": "null"}, "without bytes"),
        ({"type": "array", "items": record_of("int", "null")}, "without bytes"),
        ({"type": "array", "items": ["int", record_of("null")]}, "without bytes"),
        ({"type": "map", "values": {"type": "fixed", "name": "f", "size": 0}}, "without bytes"),
        (record_of(*["null"] * 1_001), "more than 1000 fields"),
        (record_of(*[record_of(*["null"] * 40, name="n"), *["n"] * 30]), "more than 1000 fields"),
    ],
)
def test_few_bytes_cannot_become_many_values(kind, text):
    with pytest.raises(ValueError, match=text):
        contains_itself(column(kind))


def test_a_chain_of_names_is_as_deep_as_types_within_types():
    later = [record_of(f"r{n - 1}", name=f"r{n}") for n in range(1, 400)]
    fields = [record_of("int", name="r0"), *later]
    with pytest.raises(ValueError, match="nested deeper than 128"):
        contains_itself(column(record_of(*fields)))


MEMORY_MAX = 100 << 20
"""What any of them may take while it is refused."""
NOTE = "note"


def nested(levels):
    found = "string"
    for number in range(levels):
        found = {"type": "array", "items": found} if number % 2 else [found, "null"]
    return found


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
    "types within types": of_column(nested(400), b""),
    "names within names": of_column(
        record("r0", *(field(f"f{n}", record(f"r{n}", field("a", f"r{n - 1}" if n > 1 else "int")))
                       for n in range(1, 400))), b"",
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
    error, peak = peak_of(lambda: read_avro(AVRO[name]))
    assert isinstance(error, FileDamaged | WrongSchema)
    assert error.fields["file"] == "a.avro"
    assert peak < MEMORY_MAX


@pytest.mark.parametrize("codec", BOMBS)
def test_a_block_that_becomes_far_more_is_refused_before_it_does(codec):
    packed = BOMBS[codec](b"\x00" * (100 << 20))
    schema = json.dumps(record("e", field(NOTE, "int"))).encode()
    data = container(schema, [(1, packed)], codec=codec)
    error, peak = peak_of(lambda: read_avro(data))
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
    # One that is not compressed is announced with its size.
    announced, _ = AvroContainer(BytesIO(of_column("bytes", plain)), "a.avro")
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


def test_the_limits_are_those_of_what_databases_have():
    assert file_limits.DEPTH_MAX >= 100
    assert file_limits.DIGITS_MAX >= 131_072 + 16_383
