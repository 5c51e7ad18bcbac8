"""The query of each dialect, and one history that is read alike in both."""

import json

import pytest

from tidegate.producer.description import (
    DIALECTS,
    GOOGLE_SQL,
    IMMUTABLE_KEY_RANGE,
    MUTABLE_KEY_RANGE,
    POSTGRESQL,
)
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.schemas.errors import ConfigError

START_NS = 1_704_164_645_000_000_001
NULLS = json.dumps({"v": None, "f": "NaN", "n": "1.50", "j": '{"a": [1]}', "e": []})


@pytest.mark.rule("spanner-stream-name")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["", "a-b", "a`) --", 'a"(', "1a", "x" * 119])
def test_an_invalid_name_is_refused(dialect, name):
    with pytest.raises(ConfigError, match="change_stream"):
        form_of(dialect, IMMUTABLE_KEY_RANGE, name)


@pytest.mark.rule("spanner-proto-records")
def test_mutable_key_ranges_are_read_as_protos():
    texts = [form_of(dialect, MUTABLE_KEY_RANGE, "Feed").sql for dialect in DIALECTS]
    assert texts[0] == form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Feed").sql
    assert texts[1] == 'SELECT * FROM "spanner"."read_proto_bytes_Feed"($1, $2, $3, $4, null)'


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ConfigError, match="dialect ORACLE") as caught:
        form_of("ORACLE", IMMUTABLE_KEY_RANGE, "Feed")
    assert all(dialect in caught.value.hint for dialect in DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_query_has_a_decoder_of_its_own(dialect):
    form = form_of(dialect, IMMUTABLE_KEY_RANGE, "Feed")
    assert form.decoder() is not form.decoder()


@pytest.mark.rule("spanner-postgresql-query", "spanner-read-options", "P7")
def test_what_postgresql_is_asked(channels, spanner, tasks):
    stream = SpannerChangeStream(channels, form_of(POSTGRESQL, IMMUTABLE_KEY_RANGE, "Everything"))
    query = stream.query(token="", start_ns=START_NS, end_ns=None, heartbeat_ms=1_000)
    tasks.run(query.next_size)
    request = spanner.requests[-1]
    # Quoted: the name is not folded to lower case.
    assert request.sql == 'SELECT * FROM "spanner"."read_json_Everything"($1, $2, $3, $4, null)'
    assert dict(request.params) == {
        "p1": "2024-01-02T03:04:05.000000001Z",
        "p2": None,
        "p3": None,
        "p4": "1000",
    }
    assert set(request.param_types) == set(request.params)
    assert request.transaction.single_use.read_only.strong


def test_a_message_counts_as_much_as_its_decoding_takes(channels, spanner, wire, tasks):
    built = wire.message(wire.json_heartbeat_row(), metadata=wire.JSONB_TYPE)
    spanner.on_stream = lambda *_: iter([built])
    stream = SpannerChangeStream(channels, form_of(POSTGRESQL, IMMUTABLE_KEY_RANGE, "Everything"))
    query = stream.query(token="", start_ns=START_NS, end_ns=None, heartbeat_ms=1_000)
    try:
        assert tasks.run(query.next_size) == built.ByteSize() * 16
    finally:
        query.cancel()


def history(data_row, heartbeat_row, children_row):
    """Rows of every kind, made by the builders of one dialect."""
    return [
        data_row(),
        data_row(record_sequence="00000002"),
        data_row(mods=[['{"id": "7"}', NULLS, '{"v": ["b"]}'], ['{"id": "8"}', "{}", "{}"]]),
        data_row(mods=[], transaction_tag="tägg", is_system_transaction=True),
        data_row(mod_type="DELETE", is_last_record_in_transaction_in_partition=False),
        data_row(column_types=[["k", '{"code":"INT64"}', True, "1"]], table_name="sales.orders"),
        data_row(number_of_records_in_transaction="9007199254740993"),
        heartbeat_row(),
        heartbeat_row("2024-01-02T03:04:05.123456789Z"),
        children_row(["a", []], ["b", ["p", "q"]]),
        children_row(["c", [None]]),
        children_row(),
    ]


def rows_of(wire, dialect):
    if dialect == GOOGLE_SQL:
        rows = history(wire.data_row, wire.heartbeat_row, wire.children_row)
        return rows, wire.row_type()
    rows = history(wire.json_data_row, wire.json_heartbeat_row, wire.json_children_row)
    return rows, wire.JSONB_TYPE


def decode(dialect, messages):
    decoder = form_of(dialect, IMMUTABLE_KEY_RANGE, "Feed").decoder()
    records = [one for message in messages for one in decoder.decode(message.SerializeToString())]
    decoder.end()
    return records


@pytest.mark.rule("spanner-dialects-equal")
@pytest.mark.usefixtures("each_way")
def test_one_history_gives_equal_records_in_both_dialects(wire):
    found = []
    for dialect in DIALECTS:
        rows, metadata = rows_of(wire, dialect)
        together = [wire.message(*rows, metadata=metadata)]
        alone = [wire.message(metadata=metadata), *(wire.message(row) for row in rows)]
        found += [decode(dialect, together), decode(dialect, alone)]
    assert len(found[0]) == len(rows)
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_equal_column_lists_are_one_object_for_all_queries(wire, dialect):
    rows, metadata = rows_of(wire, dialect)
    form = form_of(dialect, IMMUTABLE_KEY_RANGE, "Feed")
    messages = [wire.message(rows[0], metadata=metadata), wire.message(rows[1])]
    columns = [
        record.columns
        for decoder in (form.decoder(), form.decoder())
        for message in messages
        for record in decoder.decode(message.SerializeToString())
        if isinstance(record, DataChangeRecord)
    ]
    assert len(columns) == 4
    assert all(one is columns[0] for one in columns)
