"""Flat values of any shape, read by fastavro; with and without the accelerator."""

from __future__ import annotations

import io
from copy import deepcopy

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_change_writer import KEYS, ROWS, TABLE
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn, UnreadableValues
from tidegate.producer.translation import change_writer
from tidegate.producer.translation.flat_writer import FlatWriter
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.flat_schema import FLAT_FIELDS
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.wire_format import unframe

pytestmark = pytest.mark.usefixtures("each_way")

KEY = RegisteredSchema(3, key_schema("p.t", TABLE))
VALUE = RegisteredSchema(4, value_schema("p.t", TABLE, TimestampForm.MICROS, Envelope.FLAT))
WIDE = RegisteredSchema(5, value_schema("p.t", TABLE))
NAMES = [column.name for column in TABLE.columns]
COLUMNS = tuple(
    RecordColumn(column.name, column.type, column.key_position is not None, column.ordinal)
    for column in TABLE.columns
)
MOD_TYPES = ("INSERT", "UPDATE", "DELETE")
OPS = dict(zip(MOD_TYPES, "cud", strict=True))


def translated(value, mods, mod_type, **changes):
    translator = Translator({"t": TableEncoding(TABLE, "p.t", KEY, value)}, change_stream="S")
    record = DataChangeRecord(
        5_000, "00000007", "tx", True, "t", COLUMNS, tuple(mods), mod_type, "NEW_ROW", 3, 2,
        "app=x", False, **changes,
    )  # fmt: skip
    return translator.translate(record, token="token").messages


def read(value):
    schema_id, body = unframe(value)
    assert schema_id == VALUE.schema_id
    buffer = io.BytesIO(body)
    found = fastavro.schemaless_reader(buffer, fastavro.parse_schema(deepcopy(VALUE.schema)), None)
    assert not buffer.read()
    return found


def normal(name, value):
    return int(value) if name in {"id", "balance", "last"} and value is not None else value


@given(st.sampled_from(MOD_TYPES), st.lists(st.tuples(KEYS, ROWS, ROWS), min_size=1, max_size=3))
def test_a_value_is_the_captured_row_and_says_what_happened_to_it(mod_type, changes):
    # As Spanner does: the key is in `keys` alone.
    mods = [
        Mod(keys, *({n: v for n, v in row.items() if n not in keys} for row in rows))
        for keys, *rows in changes
    ]
    messages = translated(VALUE, mods, mod_type, first_mod_number=2)
    like = translated(WIDE, mods, mod_type, first_mod_number=2)
    assert [one._replace(value=b"") for one in messages] == [
        one._replace(value=b"") for one in like
    ]
    for number, (message, mod) in enumerate(zip(messages, mods, strict=True), 2):
        captured = mod.old_values if mod_type == "DELETE" else mod.new_values
        row = {name: normal(name, value) for name, value in (captured | dict(mod.keys)).items()}
        found = read(message.value)
        assert {name: found.pop(name) for name in NAMES} == dict.fromkeys(NAMES) | row
        assert found.pop("__commit_timestamp").timestamp() * 1e6 == 5
        assert found == {
            "__op": OPS[mod_type],
            "__deleted": "true" if mod_type == "DELETE" else "false",
            "__columns": [name for name in NAMES if name in row],
            "__server_transaction_id": "tx",
            "__record_sequence": "00000007",
            "__mod_number": number,
            "__is_last_record_in_transaction_in_partition": True,
            "__number_of_records_in_transaction": 3,
            "__number_of_partitions_in_transaction": 2,
            "__transaction_tag": "app=x",
            "__is_system_transaction": False,
            "__value_capture_type": "NEW_ROW",
        }


def test_more_shapes_than_are_compiled_are_written_alike(monkeypatch):
    mod = Mod({"region": "r", "id": "1"}, {"balance": "7", "first": None}, {})
    (compiled,) = translated(VALUE, [mod], "UPDATE")
    monkeypatch.setattr(change_writer, "_SHAPES_MAX", 0)
    assert translated(VALUE, [mod], "UPDATE") == (compiled,)


def test_a_stream_of_both_envelopes_keeps_their_sources_apart():
    """Not that there is one; but a cache of sources must not mix them up."""
    flat = TableEncoding(TABLE, "p.t", KEY, VALUE)
    translator = Translator({"t": TableEncoding(TABLE, "p.t", KEY, WIDE)}, change_stream="S")
    mod = Mod({"region": "r", "id": "1"}, {"balance": "7"}, {})
    record = DataChangeRecord(
        5_000, "7", "tx", True, "t", COLUMNS, (mod,), "INSERT", "NEW_ROW", 1, 1, "", False
    )
    wide = translator.translate(record, token="k").messages[0].value
    translator.replace(flat)
    assert read(translator.translate(record, token="k").messages[0].value)["balance"] == 7
    translator.replace(TableEncoding(TABLE, "p.t", KEY, WIDE))
    assert translator.translate(record, token="k").messages[0].value == wide


@pytest.mark.parametrize("changed", [FLAT_FIELDS[:-1], FLAT_FIELDS[::-1]])
def test_a_registered_schema_of_another_form_is_refused(changed):
    columns = VALUE.schema["fields"][: len(NAMES)]
    other = RegisteredSchema(9, {**VALUE.schema, "fields": [*columns, *changed]})
    with pytest.raises(SchemaError, match="not that of a change"):
        FlatWriter(TABLE, key=KEY, value=other)


def test_what_cannot_be_written_is_named():
    keys = {"region": "r", "id": "1"}
    with pytest.raises(SchemaError) as caught:
        translated(VALUE, [Mod(keys, {"balance": "x"}, {})], "INSERT")
    assert caught.value.fields["column"] == "balance"
    with pytest.raises(TableChanged):
        translated(VALUE, [Mod(keys, {"later": "1"}, {})], "INSERT")
    unreadable = UnreadableValues("{", SchemaError("values cannot be read"))
    with pytest.raises(SchemaError, match="cannot be read"):
        translated(VALUE, [Mod(keys, {}, unreadable)], "DELETE")
