"""Changes of any shape, wide and flat: compiled, without compiling, and written by fastavro."""

import io
from copy import deepcopy

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.producer.translation.translation_building import (
    INT64,
    STRING,
    columns_of,
    read_framed,
)
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation import change_writer
from tidegate.producer.translation.change_writer import ChangeWriter, FlatWriter, SourceWriter
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import FLAT_FIELDS, key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.wire_format import unframe

pytestmark = pytest.mark.usefixtures("each_way")

TABLE = TableSchema(
    "t",
    (Column("first", STRING, 1), Column("id", INT64, 2, 2), Column("region", STRING, 3, 1),
     Column("balance", INT64, 4), Column("tags", ColumnType("ARRAY", STRING), 5),
     Column("last", INT64, 6)),
)  # fmt: skip
KEY = RegisteredSchema(3, key_schema("p.t", TABLE))
VALUE = RegisteredSchema(4, value_schema("p.t", TABLE))
SCHEMAS = [fastavro.parse_schema(deepcopy(one.schema)) for one in (KEY, VALUE)]
SOURCE = {
    "commit_timestamp": 5, "server_transaction_id": "tx", "record_sequence": "1", "mod_number": 0,
    "is_last_record_in_transaction_in_partition": True, "number_of_records_in_transaction": 1,
    "number_of_partitions_in_transaction": 1, "transaction_tag": "", "is_system_transaction": False,
    "value_capture_type": "", "change_stream": "S", "partition_token": "k",
}  # fmt: skip

NAMES = [column.name for column in TABLE.columns]


def by_fastavro(schema, datum):
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, datum)
    return buffer.getvalue()


PARTS = {
    "before": b"\x0a\x04tx\x021",
    "number": b"\x00",
    "after": by_fastavro(SCHEMAS[1]["fields"][-1]["type"], SOURCE)[len(b"\x0a\x04tx\x021\x00") :],
}
KEYS = st.fixed_dictionaries({"region": st.none() | st.text(), "id": st.integers(-9, 9).map(str)})
LONG = st.none() | st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "first": st.none() | st.text(),
        "id": LONG.map(lambda n: n if n is None else str(n)),
        "balance": LONG,
        "tags": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "last": LONG,
    },
).flatmap(lambda row: st.permutations(sorted(row)).map(lambda order: {n: row[n] for n in order}))
MODS = st.builds(Mod, KEYS, ROWS, ROWS)
MOD_TYPES = st.sampled_from(["INSERT", "UPDATE", "DELETE"])


def reader_of(registered):
    return lambda framed: read_framed(framed, {registered.schema_id: registered.schema}.get)


def new_writer(value=VALUE):
    return ChangeWriter(TABLE, key=KEY, value=value)


def not_compiled(writer):
    writer._compiled = dict.fromkeys(range(256))
    return writer


def plain(row):
    return {
        name: int(value) if name in {"id", "balance", "last"} and value is not None else value
        for name, value in row.items()
    }


def expected(mod_type, mod):
    """A change by docs/protocol.md, 3.3, written by fastavro."""

    def row(captured):
        filled = plain({**mod.keys, **captured})
        return filled, [name for name in NAMES if name in filled]

    new = (None, None) if mod_type == "DELETE" else row(mod.new_values)
    has_old_row = mod_type == "DELETE" or (mod_type == "UPDATE" and mod.old_values)
    old = row(mod.old_values) if has_old_row else (None, None)
    value = {
        "mod_type": mod_type, "new_values": new[0], "old_values": old[0], "new_columns": new[1],
        "old_columns": old[1], "source": SOURCE,
    }  # fmt: skip
    return by_fastavro(SCHEMAS[0], plain(mod.keys)), by_fastavro(SCHEMAS[1], value)


@settings(max_examples=60)
@given(st.lists(st.tuples(MOD_TYPES, MODS), min_size=1, max_size=6))
def test_changes_of_any_shapes_are_what_fastavro_writes(changes):
    writer, full = new_writer(), not_compiled(new_writer())
    for mod_type, mod in [*changes, *reversed(changes)]:
        for one in (writer, full):
            key, value = map(unframe, one.write(mod_type, mod, **PARTS))
            assert (key[0], value[0]) == (3, 4)
            assert (key[1], value[1]) == expected(mod_type, mod)
    assert 0 < len(writer._compiled) <= len(changes)
    assert len(full._compiled) == 256


def test_shapes_do_not_pile_up():
    columns = [Column(f"c{number}", INT64, number + 2) for number in range(400)]
    table = TableSchema("t", (Column("id", INT64, 1, key_position=1), *columns))
    value = RegisteredSchema(4, value_schema("p.t", table))
    writer = ChangeWriter(table, key=RegisteredSchema(3, key_schema("p.t", table)), value=value)
    read = reader_of(value)
    for number in range(400):
        mod = Mod({"id": "1"}, {f"c{number}": str(number)}, {})
        found = read(writer.write("INSERT", mod, **PARTS)[1])
        assert found["new_values"][f"c{number}"] == number
        assert found["new_columns"] == ["id", f"c{number}"]
    assert len(writer._compiled) == 256


GOOD = {"region": "eu", "id": "1"}


@pytest.mark.parametrize("is_full", [False, True], ids=["compiled", "not compiled"])
@pytest.mark.parametrize(
    ("mod", "kind", "fields", "text"),
    [
        (Mod({"region": "eu", "id": "x"}, {}, {}), SchemaError, {"column": "id"}, ""),
        (Mod(GOOD, {"balance": "1", "last": "x"}, {}), SchemaError, {"column": "last"}, ""),
        (Mod(GOOD, {"balance": "1"}, {"balance": "x"}), SchemaError, {"column": "balance"}, ""),
        (Mod({"region": "eu"}, {}, {}), SchemaError, {"column": "id"}, "primary key"),
        (Mod({"region": "eu", "ident": "7"}, {"balance": "12"}, {}), SchemaError,
         {"column": "id"}, "without a column of its primary key"),
        (Mod({**GOOD, "last": "1"}, {}, {}), SchemaError, {"columns": ["last"]},
         "not in the primary key"),
        (Mod(GOOD, {"added": None}, {}), TableChanged, {"column": "added"}, "unknown column"),
        (Mod(GOOD, {}, {"added": None}), TableChanged, {"column": "added"}, "unknown column"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_written_is_refused_with_its_column(mod, kind, fields, text, is_full):
    writer = not_compiled(new_writer()) if is_full else new_writer()
    for _ in range(2):
        with pytest.raises(kind, match=text) as caught:
            writer.write("UPDATE", mod, **PARTS)
        assert fields.items() <= caught.value.fields.items()


def test_names_are_data():
    name = "x']); raise SystemExit #{0}\n\\"
    key = [change_writer.Piece("keys", name, lambda value: value, "")]
    value = [change_writer.Piece("new", name, lambda value: value, ""), *key]
    write = change_writer._compile(key, value)
    assert write({name: b"k"}, {name: b"n"}, {}, b"b", b"0", b"a") == (b"k", b"nkb0a")


def other_forms():
    renamed, reordered, symbols, source = (deepcopy(VALUE.schema) for _ in range(4))
    renamed["fields"][0]["name"] = "kind"
    reordered["fields"][3:5] = reversed(reordered["fields"][3:5])
    symbols["fields"][0]["type"]["symbols"] = ["INSERT", "DELETE", "UPDATE"]
    source["fields"][-1]["type"]["fields"].pop()
    return [renamed, reordered, symbols, source]


FLAT = RegisteredSchema(4, value_schema("p.t", TABLE, TimestampForm.MICROS, Envelope.FLAT))


@pytest.mark.parametrize(
    ("writer", "schema"),
    [
        *((ChangeWriter, schema) for schema in other_forms()),
        *((FlatWriter, {**FLAT.schema, "fields": [*FLAT.schema["fields"][: len(NAMES)], *fields]})
          for fields in (FLAT_FIELDS[:-1], FLAT_FIELDS[::-1])),
    ],
)  # fmt: skip
def test_a_registered_schema_of_another_form_is_refused(writer, schema):
    with pytest.raises(SchemaError, match="not that of a change"):
        writer(TABLE, key=KEY, value=RegisteredSchema(4, schema))


read_flat = reader_of(FLAT)


def record_of(mod_type, *mods):
    return DataChangeRecord(
        5_000, "00000007", "tx", True, "t", columns_of(TABLE), mods, mod_type, "NEW_ROW", 3, 2,
        "app=x", False, 2,
    )  # fmt: skip


def translator_of(value):
    return Translator({"t": TableEncoding(TABLE, "p.t", KEY, value)}, change_stream="S")


@given(MOD_TYPES, st.lists(st.tuples(KEYS, ROWS, ROWS), min_size=1, max_size=3))
def test_a_value_is_the_captured_row_and_says_what_happened_to_it(mod_type, changes):
    # As Spanner does: the key is in `keys` alone.
    mods = [
        Mod(keys, *({n: v for n, v in row.items() if n not in keys} for row in rows))
        for keys, *rows in changes
    ]
    flat, wide = (
        translator_of(value).translate(record_of(mod_type, *mods), token="token").messages
        for value in (FLAT, VALUE)
    )
    assert [one._replace(value=b"") for one in flat] == [one._replace(value=b"") for one in wide]
    for number, (message, mod) in enumerate(zip(flat, mods, strict=True), 2):
        row = plain({**(mod.old_values if mod_type == "DELETE" else mod.new_values), **mod.keys})
        found = read_flat(message.value)
        assert {name: found.pop(name) for name in NAMES} == dict.fromkeys(NAMES) | row
        assert found.pop("__commit_timestamp").timestamp() * 1e6 == 5
        assert found == {
            "__op": {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[mod_type],
            "__deleted": "true" if mod_type == "DELETE" else "false",
            "__columns": [name for name in NAMES if name in row], "__server_transaction_id": "tx",
            "__record_sequence": "00000007", "__mod_number": number,
            "__is_last_record_in_transaction_in_partition": True,
            "__number_of_records_in_transaction": 3, "__number_of_partitions_in_transaction": 2,
            "__transaction_tag": "app=x", "__is_system_transaction": False,
            "__value_capture_type": "NEW_ROW",
        }  # fmt: skip


def test_more_shapes_and_another_envelope_change_no_value(monkeypatch):
    """A stream has one envelope; but a cache of sources must not mix them up."""
    record = record_of("UPDATE", Mod(GOOD, {"balance": "7", "first": None}, {}))
    translator = translator_of(VALUE)

    def value(registered):
        translator.replace(TableEncoding(TABLE, "p.t", KEY, registered))
        return translator.translate(record, token="k").messages[0].value

    wide, flat = value(VALUE), value(FLAT)
    assert read_flat(flat)["balance"] == 7
    monkeypatch.setattr(change_writer, "_SHAPES_MAX", 0)
    assert (value(VALUE), value(FLAT)) == (wide, flat)


def test_sources_do_not_pile_up_and_a_number_beyond_64_bits_is_refused():
    record, writer = record_of("INSERT"), SourceWriter("S")
    first = writer.after_mod_number(record)
    for number in range(2_000):
        writer.after_mod_number(record._replace(transaction_tag=f"tag {number}"))
    assert len(writer._encoded) <= 1024
    assert writer.after_mod_number(record) == first
    with pytest.raises(SchemaError, match="64 bits"):
        SourceWriter("S").after_mod_number(record._replace(number_of_records_in_transaction=2**63))
