"""The transactions of a release as the ordered topic gets them."""

import json
from datetime import UTC, datetime

import pytest

from tidegate.spark_consumer.sinks.transaction_rows import transaction_records

pytestmark = pytest.mark.spark

A = {2: {"id": "INT64", "a": "STRING"}}
B = {4: {"id": "INT64", "at": "TIMESTAMP"}}
AT = datetime(2026, 1, 1, microsecond=7, tzinfo=UTC)


@pytest.mark.rule("sink-topic-transaction")
@pytest.mark.parametrize("small", [False, True])
def test_each_transaction_is_a_record_over_all_tables_in_commit_order(kit, small):
    a, b = kit.Topic("a", A, ["id"], key_id=1), kit.Topic("b", B, ["id"], key_id=3)
    changes = [
        (b, kit.Change("INSERT", {"id": 1}, {"at": AT}, us=3, transaction="t2")),
        (a, kit.Change("INSERT", {"id": 7}, {"a": None}, us=2)),
        (a, kit.Change("DELETE", {"id": 7}, None, us=3, transaction="t2", sequence=1)),
    ]
    found = list(transaction_records(kit.release(4, changes, small=small)))
    assert [(one.first_ordinal, one.changes, one.key) for one in found] == [
        (0, 1, b"t1"), (1, 2, b"t2"),
    ]  # fmt: skip
    first, second = (json.loads(one.value) for one in found)
    assert first["commit_timestamp"] == "1970-01-01T00:00:00.000002Z"
    assert first["changes"][0]["new_values"] == {"id": 7, "a": None}
    assert [(one["table"], one["mod_type"]) for one in second["changes"]] == [
        ("b", "INSERT"), ("a", "DELETE"),
    ]  # fmt: skip
    assert second["changes"][0]["new_values"] == {"id": 1, "at": "2026-01-01T00:00:00.000007Z"}
    assert second["changes"][1]["new_values"] is None
