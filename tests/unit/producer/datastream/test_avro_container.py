"""Container files, block by block; a file that was cut anywhere but between blocks is noticed."""

import lzma
import random
from io import BytesIO

import pytest
from fastavro import _read_py

from tests.datastream_files import avro_bytes, history
from tidegate.producer.datastream.avro_container import MAGIC, AvroContainer
from tidegate.producer.datastream.errors import FileCutShort, FileDamaged, WrongSchema

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


def read(data):
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
    assert read(data) == list(enumerate(EVENTS, 1))


@pytest.mark.parametrize("preset", [0, 6, 9, 9 | lzma.PRESET_EXTREME])
def test_every_preset_of_xz_is_read(preset):
    data = container(b'"int"', [(1, lzma.compress(b"\x02", preset=preset))], codec=b"xz")
    assert read(data) == [(1, 1)]


def test_a_file_without_records_has_a_schema():
    found = AvroContainer(BytesIO(avro_bytes("postgresql", [])), "a.avro")
    assert list(found) == []
    assert found.schema["name"] == "public_orders"


@pytest.mark.rule("datastream-cut-files")
def test_a_file_cut_anywhere_is_noticed_unless_it_ends_between_two_blocks():
    ends = [n + 16 for n in range(len(WHOLE)) if WHOLE[n : n + 16] == SYNC]
    assert len(ends) > 3
    for end in range(len(WHOLE)):
        if end in ends:
            assert len(read(WHOLE[:end])) < len(EVENTS)
        else:
            with pytest.raises(FileCutShort, match=r"file='a\.avro'"):
                read(WHOLE[:end])


def test_what_was_read_before_the_cut_is_there_and_the_record_is_named():
    found = []
    with pytest.raises(FileCutShort) as caught:
        found.extend(AvroContainer(BytesIO(WHOLE[:-20]), "a.avro"))
    assert caught.value.fields["record"] == len(list(AvroContainer(BytesIO(WHOLE), "a"))) - (
        len(EVENTS) - caught.value.fields["record"]
    )
    assert 0 < caught.value.fields["record"] < len(EVENTS)


def test_a_file_that_ends_within_the_count_of_a_block_is_no_whole_one():
    """The reason why blocks are read here: fastavro without its compiled part takes it for one."""
    schema = b'{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
    head = container(schema, [])
    cut = container(schema, [(200, b"\x02x" * 200)])[: len(head) + 1]
    assert list(_read_py.reader(BytesIO(cut))) == []
    with pytest.raises(FileCutShort, match="record=0"):
        read(cut)


@pytest.mark.rule("datastream-cut-files")
@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([(1, b"\x02")], "not of the file's schema"),
        ([(1, b"\x02xx")], "more than its records"),
        ([(2, b"\x02x")], "a record is not of|block of 2"),
        ([(-1, b"\x02x")], "block of -1"),
        ([(10**9, b"\x02x")], "block of 1000000000"),
        ([(1, b"\x02\xff")], "not of the file's schema"),
    ],
)
def test_a_block_that_is_not_what_it_says_is_damage(blocks, message):
    schema = b'{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
    with pytest.raises(FileDamaged, match=message):
        read(container(schema, blocks))


def test_a_block_that_claims_to_be_huge_allocates_nothing():
    schema = b'{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
    data = container(schema, []) + varint(1) + varint(2**40)
    with pytest.raises(FileDamaged, match="1099511627776 bytes"):
        read(data)
    with pytest.raises(FileDamaged, match="64 bits"):
        read(container(schema, []) + b"\xff" * 11)


def test_another_sync_marker_is_damage():
    data = bytearray(WHOLE)
    data[-1] ^= 1
    with pytest.raises(FileDamaged, match="sync marker"):
        read(bytes(data))


@pytest.mark.parametrize(
    ("schema", "codec", "kind", "message"),
    [
        (b"{}", b"null", WrongSchema, "not one of Avro"),
        (b'{"type":"nonsense"}', b"null", WrongSchema, "not one of Avro"),
        (b"not JSON", b"null", FileDamaged, "not JSON"),
        (b'"string"', b"snappy", WrongSchema, "'snappy', which is not one of bzip2, deflate"),
    ],
)
def test_heads_that_cannot_be_used(schema, codec, kind, message):
    with pytest.raises(kind, match=message):
        read(container(schema, [], codec=codec))


def test_a_head_without_a_schema_and_one_that_is_too_large():
    with pytest.raises(FileDamaged, match=r"no avro\.schema"):
        read(MAGIC + varint(0) + SYNC)
    with pytest.raises(FileDamaged, match="head is larger"):
        read(MAGIC + varint(1) + varint(2**33))
    with pytest.raises(FileDamaged, match="does not begin"):
        read(b"Obj\x02" + SYNC)


def test_a_compressed_block_that_is_damaged_or_cut():
    data = avro_bytes("postgresql", EVENTS, codec="deflate")
    at = data.index(SYNC) + 16
    with pytest.raises(FileDamaged, match="cannot be decompressed"):
        read(data[: at + 4] + b"\xff\xff\xff" + data[at + 7 :])


@pytest.mark.rule("datastream-large-files")
def test_one_block_is_in_memory_at_a_time():
    """The stream is read no further than the block of the record that was taken."""
    stream = BytesIO(WHOLE)
    records = iter(AvroContainer(stream, "a"))
    next(records)
    assert stream.tell() < 0.6 * len(WHOLE)
