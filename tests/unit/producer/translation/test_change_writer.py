"""Changes of any shape: compiled, put together without compiling, and written by fastavro."""

import io
from copy import deepcopy

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.producer.errors import TableChanged
from tidegate.producer.records import Mod
from tidegate.producer.translation import change_writer
from tidegate.producer.translation.change_writer import ChangeWriter
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.wire_format import unframe

pytestmark = pytest.mark.usefixtures("each_way")

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")
TABLE = TableSchema(
    "t",
    (
        Column("first", STRING, 1),
        Column("id", INT64, 2, key_position=2),
        Column("region", STRING, 3, key_position=1),
        Column("balance", INT64, 4),
        Column("tags", ColumnType("ARRAY", STRING), 5),
        Column("last", INT64, 6),
    ),
)
KEY = RegisteredSchema(3, key_schema("p.t", TABLE))
VALUE = RegisteredSchema(4, value_schema("p.t", TABLE))
SCHEMAS = [fastavro.parse_schema(deepcopy(one.schema)) for one in (KEY, VALUE)]
SOURCE = {
    "commit_timestamp": 5,
    "server_transaction_id": "tx",
    "record_sequence": "1",
    "mod_number": 0,
    "is_last_record_in_transaction_in_partition": True,
    "number_of_records_in_transaction": 1,
    "number_of_partitions_in_transaction": 1,
    "transaction_tag": "",
    "is_system_transaction": False,
    "value_capture_type": "",
    "change_stream": "S",
    "partition_token": "k",
}


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


def new_writer(table=TABLE, value=VALUE):
    return ChangeWriter(table, key=KEY, value=value)


def expected(mod_type, mod):
    """A change by docs/protocol.md, 3.3, written by fastavro."""

    def row(captured):
        filled = {**mod.keys, **captured}
        plain = {
            name: None if value is None else int(value) if name == "id" else value
            for name, value in filled.items()
        }
        return plain, [column.name for column in TABLE.columns if column.name in filled]

    new = (None, None) if mod_type == "DELETE" else row(mod.new_values)
    has_old_row = mod_type == "DELETE" or (mod_type == "UPDATE" and mod.old_values)
    old = row(mod.old_values) if has_old_row else (None, None)
    key = {"region": mod.keys["region"], "id": int(mod.keys["id"])}
    value = {
        "mod_type": mod_type,
        "new_values": new[0],
        "old_values": old[0],
        "new_columns": new[1],
        "old_columns": old[1],
        "source": SOURCE,
    }
    return by_fastavro(SCHEMAS[0], key), by_fastavro(SCHEMAS[1], value)


def assert_written(writer, mod_type, mod):
    key, value = writer.write(mod_type, mod, **PARTS)
    assert (unframe(key)[0], unframe(value)[0]) == (3, 4)
    assert (unframe(key)[1], unframe(value)[1]) == expected(mod_type, mod)


@settings(max_examples=40)
@given(MOD_TYPES, MODS)
def test_compiled_functions_write_what_fastavro_writes(mod_type, mod):
    writer = new_writer()
    for _ in range(2):
        assert_written(writer, mod_type, mod)
    assert len(writer._compiled) == 1


@settings(max_examples=40)
@given(st.lists(st.tuples(MOD_TYPES, MODS), min_size=2, max_size=6))
def test_shapes_do_not_disturb_each_other(changes):
    writer = new_writer()
    for mod_type, mod in [*changes, *reversed(changes)]:
        assert_written(writer, mod_type, mod)


@settings(max_examples=40)
@given(MOD_TYPES, MODS)
def test_a_shape_too_many_is_written_without_compiling(mod_type, mod):
    writer = new_writer()
    writer._compiled = dict.fromkeys(range(256))
    assert_written(writer, mod_type, mod)
    assert len(writer._compiled) == 256


def test_shapes_do_not_pile_up():
    columns = [Column("id", INT64, 1, key_position=1)]
    columns += [Column(f"c{number}", INT64, number + 2) for number in range(400)]
    table = TableSchema("t", tuple(columns))
    value = RegisteredSchema(4, value_schema("p.t", table))
    writer = ChangeWriter(table, key=RegisteredSchema(3, key_schema("p.t", table)), value=value)
    schema = fastavro.parse_schema(deepcopy(value.schema))
    for number in range(400):
        mod = Mod({"id": "1"}, {f"c{number}": str(number)}, {})
        _, framed = writer.write("INSERT", mod, **PARTS)
        found = fastavro.schemaless_reader(io.BytesIO(unframe(framed)[1]), schema, None)
        assert found["new_values"][f"c{number}"] == number
        assert found["new_columns"] == ["id", f"c{number}"]
    assert len(writer._compiled) == 256


@pytest.mark.parametrize("is_full", [False, True], ids=["compiled", "not compiled"])
@pytest.mark.parametrize(
    ("mod", "column"),
    [
        (Mod({"region": "eu", "id": "x"}, {}, {}), "id"),
        (Mod({"region": 5, "id": "1"}, {}, {}), "region"),
        (Mod({"region": "eu", "id": "1"}, {"balance": "1", "last": "x"}, {}), "last"),
        (Mod({"region": "eu", "id": "1"}, {"balance": "1"}, {"balance": "x"}), "balance"),
        (Mod({"region": "eu"}, {}, {}), "id"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(mod, column, is_full):
    writer = new_writer()
    if is_full:
        writer._compiled = dict.fromkeys(range(256))
    for _ in range(2):
        with pytest.raises(SchemaError) as caught:
            writer.write("UPDATE", mod, **PARTS)
        assert caught.value.fields["column"] == column


def test_a_key_with_other_columns_is_refused():
    mod = Mod({"region": "eu", "id": "1", "last": "1"}, {}, {})
    with pytest.raises(SchemaError, match="not in the primary key") as caught:
        new_writer().write("UPDATE", mod, **PARTS)
    assert caught.value.fields["columns"] == ["last"]


def test_an_unknown_column_in_the_place_of_a_key_column_is_refused():
    mod = Mod({"region": "eu", "ident": "7"}, {"balance": "12"}, {})
    with pytest.raises(SchemaError, match="without a column of its primary key") as caught:
        new_writer().write("INSERT", mod, **PARTS)
    assert caught.value.fields["column"] == "id"


@pytest.mark.parametrize("place", [1, 2])
def test_an_unknown_column_is_a_changed_table(place):
    mod = [{"region": "eu", "id": "1"}, {}, {}]
    mod[place] = {"added": None}
    with pytest.raises(TableChanged) as caught:
        new_writer().write("UPDATE", Mod(*mod), **PARTS)
    assert caught.value.fields["column"] == "added"


def test_a_column_that_only_other_versions_know_is_null():
    wider = TableSchema("t", (*TABLE.columns, Column("gone", INT64, 7)))
    value = RegisteredSchema(4, value_schema("p.t", wider))
    mod = Mod({"region": "eu", "id": "1"}, {"last": "1"}, {})
    _, framed = new_writer(value=value).write("INSERT", mod, **PARTS)
    schema = fastavro.parse_schema(deepcopy(value.schema))
    found = fastavro.schemaless_reader(io.BytesIO(unframe(framed)[1]), schema, None)
    assert found["new_values"]["gone"] is None
    assert found["new_columns"] == ["id", "region", "last"]


def test_names_are_data():
    """What is compiled has them as literals, whatever they hold."""
    name = "x']); raise SystemExit #{0}\n\\"
    key = [change_writer._Piece("keys", name, lambda value: value, "")]
    value = [change_writer._Piece("new", name, lambda value: value, ""), *key]
    write = change_writer._compile(key, value)
    assert write({name: b"k"}, {name: b"n"}, {}, b"b", b"0", b"a") == (b"k", b"nkb0a")


def other_forms():
    renamed, reordered, symbols, source = (deepcopy(VALUE.schema) for _ in range(4))
    renamed["fields"][0]["name"] = "kind"
    reordered["fields"][3:5] = reversed(reordered["fields"][3:5])
    symbols["fields"][0]["type"]["symbols"] = ["INSERT", "DELETE", "UPDATE"]
    source["fields"][-1]["type"]["fields"].pop()
    return [renamed, reordered, symbols, source]


@pytest.mark.parametrize("schema", other_forms())
def test_a_value_schema_of_another_form_is_refused(schema):
    with pytest.raises(SchemaError, match="not that of a change"):
        new_writer(value=RegisteredSchema(4, schema))
