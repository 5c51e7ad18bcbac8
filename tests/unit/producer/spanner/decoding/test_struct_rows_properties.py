"""Responses decoded by the accelerator, against the Python code beside it: records and errors."""

import gc
import json
import sys

import pytest
from google.cloud.spanner_v1.types import PartialResultSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.damage import damaged_row
from tidegate.producer.records import DataChangeRecord, Mod, UnreadableValues
from tidegate.producer.spanner.decoding.response import Chunks
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder
from tidegate.schemas.errors import SchemaError

pytestmark = pytest.mark.usefixtures("compiled")

BOTH_WAYS = settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def decoder_of(wire, *, is_compiled, record=None):
    """A decoder that has read the metadata, as it is from a query's second message on."""
    decoder = ResponseDecoder(ColumnTypesCache())
    if not is_compiled:
        decoder._accelerator = None
    kind = wire.row_type() if record is None else wire.row_type(record)
    decoder.decode(wire.message(metadata=kind).SerializeToString())
    return decoder


def plain(record):
    """A record, its unreadable values by what they say."""
    if not isinstance(record, DataChangeRecord):
        return record
    mods = [
        [(one.text, one.error.message) if isinstance(one, UnreadableValues) else one for one in mod]
        for mod in record.mods
    ]
    assert all(type(mod) is Mod for mod in record.mods)
    return record._replace(mods=mods)


def outcome(decoder, messages):
    """The records of all messages, or the error and where it came."""
    found = []
    for message in messages:
        try:
            found += map(plain, decoder.decode(message))
        except SchemaError as error:
            return found, error.message, error.fields
    return found, decoder.unfinished_bytes


def assert_equal_both_ways(wire, *messages, record=None):
    ways = [
        outcome(decoder_of(wire, is_compiled=is_compiled, record=record), messages)
        for is_compiled in (False, True)
    ]
    assert ways[0] == ways[1]
    return ways[1]


TEXTS = st.sampled_from(
    ["", "null", "[]", "{", "{}", '{"id":"7"}', '{"a":1,"a":2}', "9" * 30, "é", "INSERT", "UPDATE"]
) | st.text(max_size=6)
TIMES = st.sampled_from(
    [
        "2024-02-29T23:59:59Z", "2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z",
        "2000-02-29T00:00:00.1Z", "0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z", "1677-09-21T00:12:43.145224192Z",
        "1682-01-01T00:00:00.000000001Z", "2255-12-31T00:00:00.999999999Z",
        "1969-12-31T23:59:59.5Z",
        "2024-01-02T03:04:60Z", "2024-01-02T24:00:00Z", "2024-01-02T03:60:00Z",
        "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-04-31T00:00:00Z",
        "2024-04-00T00:00:00Z", "2024-01-02T03:04:05.Z", "2024-01-02T03:04:05.1234567890Z",
        "2024-01-02t03:04:05z", "2024-01-02T03:04:05+01:00", "2024-01-02 03:04:05Z",
        "2024-01-02T03:04:05.12x4Z", "+024-01-02T03:04:05Z", "2024-01-02T03:04:05", "",
    ]
) | st.datetimes().map(lambda at: f"{at.isoformat()}Z")  # fmt: skip
SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False) | TEXTS | TIMES
PLAIN = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


def rows(wire):
    mods = [
        ['{"id":"7"}', json.dumps({"v": ["x" * 200, None], "w": 1.5}), "{}"],
        ['{"id":"8"}', None, '{"v":null}'],
    ]
    two = [*wire.data_row(), *wire.data_row(record_sequence="00000002")]
    return [
        wire.data_row(mods=mods, mod_type="UPDATE"),
        wire.data_row(),
        two,
        [[[*wire.data_row()[0][0], *wire.data_row()[0][0]], [], []]],
        [[wire.data_row()[0][0], [], None]],
        [[wire.data_row()[0][0], wire.heartbeat_row()[0][1], []]],
        wire.data_row(mods=None),
        wire.data_row(mods=[]),
        wire.heartbeat_row(),
        wire.children_row(["child", ["left"]]),
        [],
        None,
        [*wire.data_row(), *wire.heartbeat_row()],
    ]


def test_each_of_the_rows_is_decoded_alike(wire):
    for row in rows(wire):
        assert_equal_both_ways(wire, wire.message(row).SerializeToString())
    built = wire.message(wire.data_row(), metadata=wire.row_type())
    built.resume_token = b"token"
    built.last = True
    built.stats.row_count_exact = 3
    found, _ = assert_equal_both_ways(wire, built.SerializeToString())
    assert len(found) == 1


@BOTH_WAYS
@given(data=st.data(), at=TIMES)
def test_any_rows_are_decoded_alike(wire, data, at):
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows(wire)))), max_size=4))
    damaged = [damaged_row(rows(wire)[place], data, PLAIN, times=(0, 2)) for place in chosen]
    chunked = data.draw(st.booleans() if damaged else st.just(value=False))
    assert_equal_both_ways(wire, wire.message(*damaged, chunked=chunked).SerializeToString())
    row = wire.data_row(commit_timestamp=at)
    assert_equal_both_ways(wire, wire.message(row).SerializeToString())


def test_every_truncation_and_every_flipped_bit_is_refused_or_read_alike(wire):
    whole = wire.message(wire.data_row(), wire.data_row()).SerializeToString()
    for size in range(len(whole)):
        assert_equal_both_ways(wire, whole[:size])
    whole = wire.message(wire.data_row()).SerializeToString()
    ways = [decoder_of(wire, is_compiled=is_compiled) for is_compiled in (False, True)]
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        found = [outcome(decoder, [bytes(flipped)]) for decoder in ways]
        assert found[0] == found[1]
        for decoder in ways:
            decoder._chunks = Chunks()


def test_unknown_fields_are_passed_over_wherever_they_stand(wire):
    data = {"later": wire.array(wire.STRING), **wire.DATA, "last": wire.BOOL}
    mod = {"later": wire.JSON, **wire.MOD}
    data["mods"] = wire.array(wire.struct(**mod))
    record = {**wire.RECORD, "data_change_record": wire.array(wire.struct(**data))}
    record = {"other": wire.array(wire.STRING), **record}
    fields = {"later": ["x"], **wire.INSERT, "last": None}
    fields["mods"] = [["unread", *one] for one in wire.INSERT["mods"]]
    row = [[["unread"], [list(fields.values())], [], []]]
    found, _ = assert_equal_both_ways(wire, wire.message(row).SerializeToString(), record=record)
    assert len(found) == 1


def arguments_of(wire, message):
    layout = decoder_of(wire, is_compiled=True)._layout
    return [message.SerializeToString(), *layout.roles, json.loads, Mod]


def test_the_usual_rows_are_taken_apart_and_no_others(wire, compiled):
    """Or the tests above would compare the Python code with itself."""
    expected = [[tuple], [tuple], [tuple] * 2, [tuple] * 2, [tuple], [bytes], [tuple], [tuple]]
    expected += [[bytes]] * 5
    for row, kinds in zip(rows(wire), expected, strict=True):
        found = compiled.records(*arguments_of(wire, wire.message(row)))
        assert [type(one) for one in found] == kinds
    unfinished = wire.message(wire.data_row(), chunked=True)
    assert compiled.records(*arguments_of(wire, unfinished)) is None


def test_other_errors_of_the_json_parser_are_raised(wire, compiled):
    def loads(_text):
        raise MemoryError

    arguments = arguments_of(wire, wire.message(wire.data_row()))
    arguments[-2] = loads
    with pytest.raises(MemoryError):
        compiled.records(*arguments)


def test_a_layout_that_is_not_complete_is_refused(wire, compiled):
    for at, value in ((2, bytes(13)), (2, b""), (2, bytes((2, 3, 4, 1, 1, 1, 6, 1))), (3, b"\1\2"),
                      (3, b"\1\2\3\4"), (3, b"\1\2\3\xff"), (5, int)):  # fmt: skip
        arguments = arguments_of(wire, wire.message())
        arguments[at] = value
        with pytest.raises(ValueError, match="not complete"):
            compiled.records(*arguments)


def test_nothing_is_kept(wire):
    """As many objects after thousands of messages, good and bad, as before."""
    whole = wire.message(*filter(None, rows(wire))).SerializeToString()
    bad = PartialResultSet.pb()(values=[wire.value([[[["x"]], [], []]])]).SerializeToString()
    decoder = decoder_of(wire, is_compiled=True)

    def read(times):
        for _ in range(times):
            decoder.decode(whole)
            for message in (bad, whole[:-1]):
                with pytest.raises(SchemaError):
                    decoder.decode(message)
        gc.collect()
        return sys.getallocatedblocks()

    read(100)
    before = read(100)
    assert read(2_000) - before < 500
