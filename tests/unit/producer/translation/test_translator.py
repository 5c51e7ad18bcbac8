"""Translation: which row, which columns were captured, which order, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.page_examples import DATA_CHANGES, example
from tests.unit.producer.translation.translation_building import (
    INT64,
    STRING,
    columns_of,
    read_framed,
)
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation import translator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

ACCOUNTS = TableSchema(
    "accounts",
    (Column("region", STRING, 1, key_position=2), Column("id", INT64, 2, key_position=1),
     Column("balance", INT64, 3), Column("note", STRING, 4)),
)  # fmt: skip
ALL_COLUMNS = columns_of(ACCOUNTS)
KEYS = {"id": "7", "region": "eu"}
RECORD = DataChangeRecord(
    1_700_000_000_123_456_000, "00000003", "tx", True, "accounts", ALL_COLUMNS,
    (Mod(KEYS, {"balance": "5", "note": None}, {}),), "INSERT", "OLD_AND_NEW_VALUES", 2, 1, "tag",
    False,
)  # fmt: skip


class Reader:
    """Reads messages as any subscriber would: by the registry alone."""

    def __init__(self):
        self.registry = InMemorySchemaRegistry()
        self.registrar = TableRegistrar(TopicNames("bank"), self.registry)
        self.translator = Translator(
            {"accounts": self.registrar.register(ACCOUNTS)}, change_stream="everything"
        )

    def read(self, framed):
        return read_framed(framed, self.registry.schema)

    def translate(self, **changes):
        return self.translator.translate(RECORD._replace(**changes), token="token")

    def values(self, **changes):
        return [self.read(m.value) for m in self.translate(**changes).messages]


@pytest.fixture
def reader():
    return Reader()


@pytest.mark.rule("spanner-record-content", "spanner-transaction-fields")
def test_an_insert_of_all_columns(reader):
    translated = reader.translate()
    assert translated.commit_timestamp_us == 1_700_000_000_123_456
    assert translated.server_transaction_id == "tx"
    assert translated.record_sequence == "00000003"
    (message,) = translated.messages
    assert message.topic == "bank.accounts"
    assert message.mod == b"I"
    assert message.origin == origin_of("token")
    assert message.order_key == OrderKey(1_700_000_000_123_456, "tx", (0, 3), 0).encode()
    assert list(reader.read(message.key).items()) == [("id", 7), ("region", "eu")]
    value = reader.read(message.value)
    assert value["new_values"] == {"region": "eu", "id": 7, "balance": 5, "note": None}
    assert value["old_values"] is None
    assert value["new_columns"] == ["region", "id", "balance", "note"]
    assert value["old_columns"] is None
    source = value["source"]
    assert source.pop("commit_timestamp").isoformat() == "2023-11-14T22:13:20.123456+00:00"
    also = {"mod_number": 0, "change_stream": "everything", "partition_token": ""}
    expected = RECORD._asdict() | also
    assert source == {name: expected[name] for name in source}
    assert len(source) == 11


@pytest.mark.rule("spanner-column-types")
@pytest.mark.parametrize(
    "changes",
    [
        {"table_name": "unheard_of"},
        {"columns": (*ALL_COLUMNS, RecordColumn("added", INT64, False, 5))},
        {"columns": (RecordColumn("balance", STRING, False, 3),)},
        {"mods": (Mod(KEYS, {"added": "1"}, {}),)},
    ],
)
def test_what_is_not_known_raises_table_changed(reader, changes):
    with pytest.raises(TableChanged) as caught:
        reader.translate(**changes)
    assert caught.value.table == changes.get("table_name", "accounts")


@pytest.mark.rule("spanner-type-codes")
@pytest.mark.parametrize(
    ("name", "code", "value"),
    [("balance", "INT", 1000), ("note", "JSON", "{}")],
    ids=["a code outside the contract leaves the catalogue's type", "of one Avro type"],
)
def test_types_of_one_avro_type_are_the_same_to_a_topic(reader, name, code, value):
    columns = (RecordColumn(name, ColumnType(code), False, 3),)
    (found,) = reader.values(columns=columns, mods=(Mod(KEYS, {name: value}, {}),))
    assert found["new_values"][name] == value


@pytest.mark.rule("spanner-type-codes")
@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"mods": (Mod({"id": "7"}, {}, {}),)}, {"column": "region"}),
        ({"mods": (Mod({**KEYS, "note": "in the key"}, {}, {}),)}, {"columns": ["note"]}),
        ({"mods": (Mod({"id": "seven", "region": "eu"}, {}, {}),)}, {"column": "id"}),
        ({"mods": (Mod(KEYS, {"balance": "x"}, {}),)}, {"column": "balance"}),
        ({"record_sequence": "third"}, {}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_coordinates(reader, changes, place):
    with pytest.raises(SchemaError) as caught:
        reader.translate(**changes)
    expected = {
        "table": "accounts", "server_transaction_id": "tx", "record_sequence": "00000003",
        "commit_timestamp_us": 1_700_000_000_123_456, **changes, **place,
    }  # fmt: skip
    expected.pop("mods", None)
    assert expected.items() <= caught.value.fields.items()


def test_records_with_equal_columns_share_a_plan_and_many_column_sets_do_not_pile_up(reader):
    for _ in range(3):
        reader.translate()
    assert len(reader.translator._plans) == 1
    for _ in range(5000):
        reader.translate(columns=(ALL_COLUMNS[0], ALL_COLUMNS[1]), mods=())
        reader.translate(columns=(*ALL_COLUMNS[:2], replace(ALL_COLUMNS[2])), mods=())
    assert len(reader.translator._plans) <= 4096


@settings(max_examples=50)
@given(st.lists(st.text(max_size=3), max_size=30), st.integers(1, 5))
def test_each_change_names_its_own_stream_partition(tokens, kept):
    reader = Reader()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(translator, "_ORIGINS_MAX", kept)
        for token in tokens:
            mods = (Mod(KEYS, {"balance": "5", "note": None}, {}),) * 2
            translated = reader.translator.translate(RECORD._replace(mods=mods), token=token)
            assert [message.origin for message in translated.messages] == [origin_of(token)] * 2
            assert len(reader.translator._origins) <= kept


ACCOUNT_BALANCE = TableSchema(
    "AccountBalance",
    (Column("AccountId", STRING, 1, key_position=1),
     Column("LastUpdate", ColumnType("TIMESTAMP"), 2), Column("Balance", INT64, 3)),
)  # fmt: skip


@pytest.mark.rule("spanner-type-codes")
def test_the_documentations_examples_are_published(reader):
    """Their types have the code `INT`, which the API does not: the catalogue's type is taken."""
    reader.translator.replace(reader.registrar.register(ACCOUNT_BALANCE))
    found = {}
    for name in DATA_CHANGES:
        (value,) = example(name).values()
        record = DataChangeRecord(
            commit_timestamp_ns=parse_rfc3339_ns(value["commit_timestamp"]),
            columns=tuple(
                RecordColumn(
                    one["name"], ColumnType.from_type_json(one["type"]), one["is_primary_key"],
                    one["ordinal_position"],
                )
                for one in value["column_types"]
            ),
            mods=tuple(
                Mod(one["keys"], one["new_values"], one["old_values"]) for one in value["mods"]
            ),
            **{name: value[name] for name in DataChangeRecord._fields if name in value
               and name not in ("commit_timestamp", "columns", "mods")},
        )  # fmt: skip
        (message,) = reader.translator.translate(record, token="child_token_1").messages
        found[name] = reader.read(message.value)
    one, other, values, row, both = found.values()
    assert (one["new_values"]["Balance"], one["old_values"]["Balance"]) == (1000, 1500)
    assert (other["new_values"]["Balance"], other["old_values"]["Balance"]) == (2000, 1500)
    updated = ["AccountId", "LastUpdate"]
    assert [(change["new_columns"], change["old_columns"]) for change in (values, row, both)] == [
        (updated, None), ([*updated, "Balance"], None), ([*updated, "Balance"], updated),
    ]  # fmt: skip
    assert one["source"]["record_sequence"] == "00000000"
    assert one["source"]["transaction_tag"] == "app=banking,env=prod,action=update"
