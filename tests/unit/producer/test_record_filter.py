"""What a filter leaves out and says of it, and the size of a message."""

import pytest

from tidegate.producer.messages import (
    FORM_RECORD,
    FORM_REDRIVEN,
    ChangeMessage,
    ParkedChange,
    PublishableRecord,
    batch_bytes,
)
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn, UnreadableValues
from tidegate.schemas.change_schema import ELSEWHERE, TRANSACTIONS_LEFT_OUT
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN

STRING = ColumnType("STRING")
COLUMNS = tuple(
    RecordColumn(name, STRING, name == "id", n) for n, name in enumerate(("id", "a", "b"))
)
TABLE = TableSchema(
    "shop.Items",
    (Column("id", STRING, 1, key_position=1), Column("a", STRING, 2), Column("b", STRING, 3)),
)


def record(**changes):
    found = DataChangeRecord(
        commit_timestamp_ns=5_000, record_sequence="0", server_transaction_id="tx",
        is_last_record_in_transaction_in_partition=True, table_name="shop.Items", columns=COLUMNS,
        mods=(Mod({"id": "1"}, {"a": "x", "b": None}, {"b": "y"}),), mod_type="UPDATE",
        value_capture_type="NEW_ROW", number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1, transaction_tag="", is_system_transaction=False,
    )  # fmt: skip
    return found._replace(**changes)


@pytest.mark.parametrize(
    ("options", "changes", "is_left_out"),
    [
        ({}, {}, False),
        ({"tables": ("shop.*",)}, {}, False),
        ({"tables": ("Items",)}, {}, True),
        ({"tables": ("shop.*",), "tables_left_out": ("*.Items",)}, {}, True),
        ({"tables_left_out": ("other",)}, {}, False),
        ({"mod_types": ("INSERT", "DELETE")}, {}, True),
        ({"mod_types": ("INSERT", "DELETE")}, {"mod_type": "INSERT"}, False),
        ({"tags_left_out": ("app=batch*",)}, {"transaction_tag": "app=batch,job=7"}, True),
        ({"tags_left_out": ("app=batch*",)}, {"transaction_tag": "app=web"}, False),
        ({"tags_left_out": ("*",)}, {}, False),
        ({"system_transactions_left_out": True}, {"is_system_transaction": True}, True),
        ({"system_transactions_left_out": True}, {}, False),
        ({"columns_left_out": ("*.*",)}, {}, False),
        ({"tables": ("SHOP.items",)}, {}, False),
        ({"tables_left_out": ("Shop.ITEMS",)}, {}, True),
        ({"tags_left_out": ("App=*",)}, {"transaction_tag": "app=web"}, False),
        ({"tags_left_out": ("[abc]?",)}, {"transaction_tag": "ax"}, False),
        ({"tags_left_out": ("[abc]?*",)}, {"transaction_tag": "[abc]?\n"}, True),
    ],
)
def test_a_record_is_left_out_as_a_whole_or_not(options, changes, is_left_out):
    chosen = RecordFilter(**options)
    assert chosen.leaves_out(record(**changes)) is is_left_out
    assert chosen.is_empty is not bool(options)


def test_columns_go_from_every_part_of_a_record():
    chosen = RecordFilter(columns_left_out=("shop.Items.b", "other.a"))
    left = chosen.narrowed(record())
    assert [column.name for column in left.columns] == ["id", "a"]
    assert left.mods == (Mod({"id": "1"}, {"a": "x"}, {}),)
    assert chosen.narrowed(record(table_name="Items")) == record(table_name="Items")


def test_equal_column_lists_stay_one_object():
    """A translator knows them by identity."""
    chosen = RecordFilter(columns_left_out=("*.b",))
    first, second = chosen.narrowed(record()), chosen.narrowed(record(commit_timestamp_ns=9))
    assert first.columns is second.columns
    others = chosen.narrowed(record(columns=tuple(COLUMNS[:2]) + COLUMNS[2:]))
    assert others.columns == first.columns


def test_values_that_cannot_be_read_stay_the_error_of_their_change():
    damaged = UnreadableValues("{", SchemaError("damaged"))
    whole = record(mods=(Mod({"id": "1"}, damaged, {"b": "y"}),))
    left = RecordFilter(columns_left_out=("*.b",)).narrowed(whole)
    # The text may hold what is left out.
    assert (left.mods[0].new_values.text, left.mods[0].new_values.error) == ("", damaged.error)
    assert left.mods[0].old_values == {}
    assert RecordFilter(columns_left_out=("other.b",)).narrowed(whole) is whole


def test_two_tables_with_one_list_of_columns_hide_their_own():
    chosen = RecordFilter(columns_left_out=("A.a", "B.b"))
    of_a, of_b = (chosen.narrowed(record(table_name=name)) for name in "AB")
    assert [column.name for column in of_a.columns] == ["id", "b"]
    assert [column.name for column in of_b.columns] == ["id", "a"]
    assert of_b.mods == (Mod({"id": "1"}, {"a": "x"}, {}),)


def test_names_of_nothing_are_found():
    chosen = RecordFilter(
        tables=("shop.items", "Orders", "Later*"),
        tables_left_out=("Gone",),
        columns_left_out=("Shop.Items.A", "shop.Items.c", "*.x"),
    )
    assert chosen.unmatched([TABLE]) == [
        "tables: Orders", "tables_left_out: Gone", "columns_left_out: shop.Items.c",
    ]  # fmt: skip


def test_a_table_has_the_columns_that_are_left_and_its_primary_key():
    chosen = RecordFilter(columns_left_out=("*.b",))
    assert [column.name for column in chosen.narrowed_table(TABLE).columns] == ["id", "a"]
    assert RecordFilter(columns_left_out=("other.*",)).narrowed_table(TABLE) is TABLE
    with pytest.raises(SchemaError, match=r"columns_left_out: id of shop\.Items"):
        RecordFilter(columns_left_out=("shop.*.i*",)).narrowed_table(TABLE)
    with pytest.raises(SchemaError, match=r"columns_left_out: id of shop\.Items"):
        RecordFilter(columns_left_out=("*.ID",)).narrowed(record())  # of an unknown table


@pytest.mark.parametrize(
    ("options", "described", "excludes"),
    [
        ({}, (), ()), ({"tables": ("a", "b*")}, ("producer.tables=a,b*",), (ELSEWHERE,)),
        ({"tables_left_out": ("a",)}, ("producer.tables_left_out=a",), (ELSEWHERE,)),
        ({"columns_left_out": ("*.a",)}, ("producer.columns_left_out=*.a",), ()),
        ({"mod_types": ("INSERT",)}, ("producer.mod_types=INSERT",),
         ("exclude_delete", "exclude_update")),
        ({"tags_left_out": ("t", "a=1,b=2")}, ("producer.tags_left_out=t;a=1,b=2",),
         (TRANSACTIONS_LEFT_OUT,)),
        ({"system_transactions_left_out": True}, ("producer.system_transactions_left_out=true",),
         (TRANSACTIONS_LEFT_OUT,)),
    ],
)  # fmt: skip
def test_it_says_what_is_left_out(options, described, excludes):
    chosen = RecordFilter(**options)
    assert (chosen.described, chosen.excludes) == (described, excludes)


HEADERS = ((HEADER_ORDER, b"o" * 36), (HEADER_MOD, b"I"))


@pytest.mark.parametrize(
    ("key", "value_bytes", "headers", "expected"),
    [
        (0, 1_930, (), 2_000), (3, 1_927, (), 2_000), (3, 1_878, HEADERS, 2_000),
        (300, 1_586, HEADERS[:1], 2_000), (3, 99_876, HEADERS, 100_000),
        (300, 99_584, HEADERS[:1], 100_000),
    ],
)  # fmt: skip
def test_the_largest_value_that_a_broker_took(key, value_bytes, headers, expected):
    """Found with Kafka 4.1: one byte more was refused under `max.message.bytes` = `expected`."""
    assert batch_bytes(b"k" * key, b"v" * value_bytes, headers) == expected


@pytest.mark.rule("spanner-mod-type")
def test_a_change_counts_its_headers():
    message = ChangeMessage("t", b"kkk", b"v" * 1_862, b"o" * 36, b"I", b"\0\1\2\3\4\5\6\7")
    assert message.headers == [*HEADERS, (HEADER_ORIGIN, message.origin)]
    assert message.size_bytes == 2_000
    assert PublishableRecord(1, "tx", "0", ()).parked == ()


def test_a_parked_change_counts_its_headers():
    change = ParkedChange(
        "p.t", b"kkk", b"order", b"I", b"content", FORM_RECORD, "SchemaError", "a text: ä", "token"
    )
    assert change.headers == [
        ("order", b"order"), ("mod", b"I"), ("topic", b"p.t"), ("form", b"record"),
        ("reason", b"SchemaError"), ("error", "a text: ä".encode()), ("token", b"token"),
    ]  # fmt: skip
    assert change.value == b"content"
    assert change.size_bytes == batch_bytes(b"kkk", b"content", change.headers)
    assert change._replace(form=FORM_REDRIVEN, content=b"").value is None
