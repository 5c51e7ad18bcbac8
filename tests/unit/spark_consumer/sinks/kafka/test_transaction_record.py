"""A transaction as a record: JSON that has every digit, the same text each time."""

import json
from decimal import Decimal
from types import SimpleNamespace

from tidegate.spark_consumer.sinks.kafka.transaction_record import transaction_record


def change(ordinal, **known):
    fields = {
        "ordinal": ordinal, "table": "accounts", "record_sequence": "0", "mod_number": 0,
        "mod_type": "UPDATE", "key": '{"id":1}', "new_values": '{"n":1.50,"t":"ä\\"b"}',
        "old_values": None, "new_columns": None, "old_columns": None,
    }  # fmt: skip
    return SimpleNamespace(**fields | known)


def record(*changes):
    return transaction_record(commit_us=1_500_000, transaction_id="t1", changes=changes)


def test_a_transaction_is_one_json_text_with_its_changes_in_order():
    big = 12345678901234567890.123456789
    text = "12345678901234567890.123456789"
    made = record(
        change(3),
        change(4, table="ledger", mod_type="DELETE", new_values=None, old_values=f'{{"n":{text}}}'),
        change(5, new_columns=["n", "t"]),
    )
    assert (made.first_ordinal, made.changes, made.key) == (3, 3, b"t1")
    found = json.loads(made.value, parse_float=Decimal)
    changes = found.pop("changes")
    assert found == {
        "commit_timestamp": "1970-01-01T00:00:01.500000Z",
        "server_transaction_id": "t1",
    }
    assert [(one["ordinal"], one["table"], one["mod_type"]) for one in changes] == [
        (3, "accounts", "UPDATE"), (4, "ledger", "DELETE"), (5, "accounts", "UPDATE"),
    ]  # fmt: skip
    assert changes[0]["key"] == {"id": 1}
    assert changes[0]["new_values"] == {"n": Decimal("1.50"), "t": 'ä"b'}
    assert changes[1]["new_values"] is None
    assert changes[1]["old_values"] == {"n": Decimal(text)}
    assert changes[1]["old_values"]["n"] != Decimal(big)
    assert (changes[0]["new_columns"], changes[2]["new_columns"]) == (None, ["n", "t"])


def test_its_fields_are_those_of_the_protocol_in_order():
    (one,) = json.loads(record(change(0)).value)["changes"]
    assert list(one) == [
        "ordinal", "table", "record_sequence", "mod_number", "mod_type",
        "key", "new_values", "old_values", "new_columns", "old_columns",
    ]  # fmt: skip
