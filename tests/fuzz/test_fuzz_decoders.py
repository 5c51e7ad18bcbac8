"""Bytes and texts from outside: each decoder returns a value or one of Tidegate's errors.

A value that a decoder believes says what its input said: written again it is the same.
"""

import base64
import gzip
import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pytest
from google.cloud.spanner_v1.types import (
    ChangeStreamRecord,
    PartialResultSet,
    StructType,
    Type,
    TypeCode,
)
from google.protobuf.struct_pb2 import Value
from hypothesis import example, given
from hypothesis import strategies as st

from tests.datastream_files import SOURCES, avro_bytes, history, json_bytes
from tests.fuzz.conftest import assert_reportable, damage
from tests.unit.producer.translation.test_translator import RECORD
from tidegate.producer.datastream.errors import Position
from tidegate.producer.datastream.event import Event, parse_event
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.records import UnreadableValues
from tidegate.producer.spanner.decoding.fields import values_of_text
from tidegate.producer.spanner.decoding.proto_rows import ProtoResponseDecoder
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache
from tidegate.producer.translation.parked_record import read_parked_record, write_parked_record
from tidegate.producer.translation.values import converter
from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.checksums import xxhash_64
from tidegate.schemas.errors import SchemaError, TidegateError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.order_key import TIMESTAMP_BYTES, OrderKey, first_key_after, sequence_pair
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.wire_format import frame, unframe

# ---------------------------------------------------------------- the decoders


def check_order_key(data, key):
    assert key.encode() == data
    assert 0 <= xxhash_64(data) < 2**64


def check_frame(data, found):
    assert 0 <= found[0] < 2**32
    assert frame(*found) == data


def check_parked(_data, record):
    (mod,) = record.mods
    assert isinstance(mod.keys, dict)
    with suppress(SchemaError):  # NaN: Python reads it, and JSON does not have it
        found = read_parked_record(write_parked_record(record), values_of_text)
        if not any(isinstance(values, UnreadableValues) for values in mod):
            assert repr(found) == repr(record)


def read_events(data):
    return list(EventFile("a", BytesIO(data)))


def check_events(_data, events):
    assert all(isinstance(event, Event) and event.order_key for event in events)


PROTO = Type(code=TypeCode.PROTO, proto_type_fqn="google.spanner.v1.ChangeStreamRecord")


def read_proto(data):
    text = base64.b64encode(data).decode()
    message = PartialResultSet.pb()(values=[Value(string_value=text)])
    fields = [StructType.Field(name="ChangeRecord", type_=PROTO)]
    message.metadata.row_type.CopyFrom(StructType.pb(StructType(fields=fields)))
    decoder = ProtoResponseDecoder(ColumnTypesCache(), column_type=TypeCode.PROTO)
    return decoder.decode(message.SerializeToString())


def check_instant(text, instant_ns):
    assert parse_rfc3339_ns(format_rfc3339(instant_ns)) == instant_ns
    carried = as_text(text)
    assert parse_rfc3339_ns(carried) == instant_ns
    assert as_text(carried) == carried
    assert (carried[10], carried[-1]) == ("T", "Z")


def check_sequence(text, pair):
    assert all(0 <= one < 2**64 for one in pair)
    assert text.isascii()


def check_number(_text, number):
    assert -(2**63) <= number < 2**63


def check_type(_text, column_type):
    """A type has a place in all that the producer does with it, or in nothing."""
    assert column_type.element is None or column_type.element.element is None
    table = TableSchema("t", (Column("id", column_type, 1, key_position=1),))
    refusals = []
    for make in (
        lambda: avro_type(column_type), lambda: converter(column_type),
        lambda: key_schema("p.t", table), lambda: value_schema("p.t", table),
    ):  # fmt: skip
        try:
            make()
        except SchemaError as error:
            assert_reportable(error)
            refusals.append(error)
    assert len(refusals) in (0, 4)


as_text = converter(ColumnType("TIMESTAMP"), TimestampForm.STRING)
EVENTS = {source: history(source, random.Random(1), 3) for source in SOURCES}
FILES = [
    data
    for source, events in EVENTS.items()
    for data in (
        avro_bytes(source, events),
        avro_bytes(source, events, codec="deflate", per_block=100),
        json_bytes(events),
        gzip.compress(json_bytes(events), mtime=0),
    )
]
AT = {"seconds": 1_704_164_645, "nanos": 678_901_000}
PROTO_ROW = ChangeStreamRecord.serialize(
    ChangeStreamRecord(
        data_change_record={
            "commit_timestamp": AT, "record_sequence": "1", "server_transaction_id": "tx",
            "table": "t", "column_metadata": [{"name": "id", "type_": {"code": 2}}],
            "mods": [{"keys": [{"value": "7"}]}], "mod_type": 10, "value_capture_type": 10,
        }
    )
)  # fmt: skip
INSTANTS = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,10})?"
    r"(Z|z|[+-][0-9]{2}:[0-9]{2})?",
    fullmatch=True,
)
NOTATION = st.sampled_from(["ARRAY", "<", ">", "(", ")", "MAX", "STRING", "INT64", "PROTO", "a.b.C",
                            " ", "\t", "9", "double precision", "[]", "\u212a", "٣"])  # fmt: skip


@dataclass(frozen=True)
class Decoder:
    """What reads outside data: whole inputs of it, others that look like it, and the worst."""

    decode: Callable[[Any], Any]
    check: Callable[[Any, Any], None] = lambda _data, _found: None
    whole: Any = ()
    like: Any = None
    worst: Any = ()
    fields: frozenset[str] = frozenset()
    """What each error names."""


DECODERS = {
    "order key": Decoder(
        OrderKey.decode, check_order_key,
        [OrderKey(1_700_000_000_123_456, "a-transaction", (7, 8), 9).encode()],
        worst=[b"\0" * 29, b"\xff" * 9 + b"\0" * 21, b"\0" * 8 + b"\xff\0" + b"\0" * 20],
    ),
    "frame": Decoder(
        unframe, check_frame, [frame(1, b"body")], st.binary(max_size=40).map(lambda b: b"\0" + b),
        [b"", b"\0\0\0\0", b"\1\0\0\0\1"],
    ),
    "parked change": Decoder(
        lambda data: read_parked_record(data, values_of_text), check_parked,
        [write_parked_record(RECORD)], worst=[b"[" * 100_000, b'{"mods":' * 10_000],
    ),
    "datastream file": Decoder(
        read_events, check_events, FILES,
        st.builds(bytes.__add__, st.sampled_from([b"Obj\x01", b"{", b"\x1f\x8b\x08"]), st.binary()),
        fields=frozenset({"file", "record"}),
    ),
    "record of mutable key ranges": Decoder(read_proto, whole=[PROTO_ROW]),
    "instant": Decoder(
        parse_rfc3339_ns, check_instant, ["2024-01-02T03:04:05.678901001Z"], INSTANTS,
        ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2024-06-30T23:59:60Z",
         "2024-01-01T24:00:00Z", "0001-01-01T00:00:00-23:59", "2024-01-02t03:04:05.000000000z"],
    ),
    "TIMESTAMP": Decoder(converter(ColumnType("TIMESTAMP")), check_number, like=INSTANTS),
    "DATE": Decoder(
        converter(ColumnType("DATE")), check_number, like=INSTANTS.map(lambda text: text[:10])
    ),
    "record sequence": Decoder(
        sequence_pair, check_sequence, ["00000001", "1a-2b"],
        st.from_regex(r"[0-9a-fA-F]{0,45}-?[0-9a-fA-F]{0,45}", fullmatch=True),
        ["9" * 100_000, "٣", "1-2\n"],
    ),
    "column type": Decoder(
        ColumnType.from_spanner_type, check_type, ["ARRAY<STRING(MAX)>", "INT64"],
        st.lists(NOTATION, max_size=12).map("".join),
        ["A" + " " * 20_000 + "!", "ARRAY<" * 5_000, "ARRAY<ARRAY<INT64>>",
         "STRING(" + "9" * 20_000],
    ),
}  # fmt: skip
OF_BYTES = [name for name, one in DECODERS.items() if one.whole and isinstance(one.whole[0], bytes)]


def believe(decoder, data):
    """Decode as the program does: a value that is right, or an error that can be reported."""
    try:
        found = decoder.decode(data)
    except TidegateError as error:
        assert_reportable(error, decoder.fields)
        return
    decoder.check(data, found)


@pytest.mark.rule("datastream-damaged-files")
@pytest.mark.parametrize("name", [name for name, one in DECODERS.items() if one.whole])
@given(data=st.data())
def test_damaged_inputs(name, data):
    decoder = DECODERS[name]
    whole = data.draw(st.sampled_from(decoder.whole))
    if isinstance(whole, bytes):
        believe(decoder, damage(data, whole))
    else:
        believe(decoder, damage(data, whole.encode()).decode(errors="replace"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", DECODERS)
@given(data=st.data())
def test_any_inputs(name, data):
    decoder = DECODERS[name]
    anything = st.binary(max_size=200) if name in OF_BYTES else st.text()
    believe(decoder, data.draw(anything if decoder.like is None else anything | decoder.like))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [name for name, one in DECODERS.items() if one.worst or one.whole])
def test_the_worst_inputs_and_whole_ones(name):
    decoder = DECODERS[name]
    for data in decoder.worst:
        believe(decoder, data)
    for data in decoder.whole:
        decoder.check(data, decoder.decode(data))


# ---------------------------------------------------------------- structured inputs

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
TYPE_FIELDS = st.sampled_from(["code", "array_element_type", "type_annotation"])
TYPE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | NOTATION,
    lambda inner: st.dictionaries(TYPE_FIELDS | st.just("x"), inner),
    max_leaves=8,
)
FIELDS = json.loads(write_parked_record(RECORD))


@given(st.dictionaries(TYPE_FIELDS, TYPE_JSON))
@example({"code": "ARRAY", "array_element_type": {"code": "ARRAY", "array_element_type": {}}})
@example({"code": "INT64", "type_annotation": {}})
def test_types_of_a_record(value):
    believe(Decoder(ColumnType.from_type_json, check_type), value)


@given(st.sampled_from(sorted(FIELDS)), st.sampled_from(["keys", "new_values", "old_values"]), ANY)
@example("commit_timestamp", "keys", "0001-01-01T00:00:00+23:59")
@example("mod_number", "keys", -1)
@example("mods", "keys", [{"keys": {}, "new_values": "{", "old_values": {}}])
def test_any_field_of_a_parked_change(name, document, value):
    (mod,) = FIELDS["mods"]
    for fields in ({name: value}, {"mods": [{**mod, document: value}]}):
        believe(DECODERS["parked change"], json.dumps({**FIELDS, **fields}).encode())


@given(st.data(), st.sampled_from(SOURCES))
def test_events_with_any_field_replaced(data, source):
    record = {**EVENTS[source][0]}
    record["source_metadata"] = {**record["source_metadata"]}
    for _ in range(data.draw(st.integers(1, 3))):
        metadata = record["source_metadata"]
        # An earlier replacement may have made it something else, or empty.
        has_fields = isinstance(metadata, dict) and bool(metadata)
        place = data.draw(st.sampled_from([record, metadata])) if has_fields else record
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(ANY)

    def check(_record, event):
        assert isinstance(event.order_key, bytes)
        assert event.key is None or len(event.key) >= 1

    believe(Decoder(lambda record: parse_event(record, Position("a", 1)), check), record)


@given(
    st.builds(
        OrderKey,
        st.integers(),
        st.text(st.characters(codec=None)),
        st.tuples(st.integers(), st.integers()),
        st.integers(),
    )
)
@example(OrderKey(0, "\ud800", (0, 0), 0))
@example(OrderKey(-1, "", (0, 0), 0))
def test_any_coordinates(key):
    def check(key, encoded):
        assert OrderKey.decode(encoded) == key

    believe(Decoder(OrderKey.encode, check), key)


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
def test_any_watermark_is_a_bound(watermark_us):
    assert len(first_key_after(watermark_us)) == TIMESTAMP_BYTES


@given(st.text(), st.lists(st.tuples(st.text(max_size=6), st.sampled_from(["INT64", "A"]))))
def test_any_names(topic, columns):
    found = (Column(name, ColumnType(code), n, n) for n, (name, code) in enumerate(columns))
    table = TableSchema("t", tuple(found))

    def check(_table, schema):
        assert schema["namespace"].isascii()

    for make in (key_schema, value_schema):
        believe(Decoder(lambda table, make=make: make(topic, table), check), table)
