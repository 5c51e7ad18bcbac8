"""What is said of a change of Spanner in an event: ids, times and places."""

from itertools import pairwise

import pytest

from tidegate.schemas.datastream_event import event_facts, facts_as_json, record_facts
from tidegate.schemas.errors import SchemaError

SOURCE = {
    "commit_timestamp": 1_700_000_000_123_456,
    "server_transaction_id": "MTIz",
    "record_sequence": "00000002",
    "is_last_record_in_transaction_in_partition": True,
    "number_of_records_in_transaction": 3,
    "number_of_partitions_in_transaction": 2,
    "transaction_tag": "tag",
    "is_system_transaction": False,
    "value_capture_type": "NEW_ROW",
    "partition_token": "not in an event",
    "mod_number": 9,
}


def facts(number=0, mod_type="UPDATE", table="shop.Items", stream="s", **source):
    of_record = record_facts(
        {**SOURCE, **source}, mod_type=mod_type, table=table, key_columns=["Id"],
        stream=stream, database="d", schema_key="k",
    )  # fmt: skip
    return event_facts(of_record, number=number, captured=["Id", "Name"])


def test_every_fact_of_the_source_has_its_place():
    metadata = facts(number=4)["source_metadata"]
    assert metadata == {
        "database": "d", "schema": "shop", "table": "Items", "primary_keys": ["Id"],
        "is_deleted": False, "change_type": "UPDATE", "tx_id": "MTIz",
        "record_sequence": "00000002", "mod_number": 4,
        "commit_timestamp": SOURCE["commit_timestamp"],
        "is_last_record_in_transaction_in_partition": True,
        "number_of_records_in_transaction": 3, "number_of_partitions_in_transaction": 2,
        "transaction_tag": "tag", "is_system_transaction": False,
        "value_capture_type": "NEW_ROW", "captured_columns": ["Id", "Name"],
    }  # fmt: skip
    assert facts(mod_type="DELETE")["source_metadata"]["is_deleted"] is True
    assert facts(table="Orders")["source_metadata"]["schema"] == ""


def test_an_id_depends_on_the_stream_and_the_place_alone():
    assert facts(3)["uuid"] == facts(3, transaction_tag="other")["uuid"]
    ids = [facts()["uuid"], facts(1)["uuid"], facts(stream="t")["uuid"],
           facts(commit_timestamp=1)["uuid"], facts(server_transaction_id="a")["uuid"],
           facts(record_sequence="00000003")["uuid"]]  # fmt: skip
    assert len(set(ids)) == len(ids)
    # The example of docs/protocol.md, 3.10, is of the same function.
    assert [len(part) for part in ids[0].split("-")] == [8, 4, 4, 4, 12]
    assert ids[0][14] == "8"


def test_sort_keys_sort_as_places_do():
    places = [(1, "b", "9", 0), (1, "b", "10", 0), (1, "b", "10", 1), (2, "a", "1", 0)]
    keys = [
        facts(n, commit_timestamp=at, server_transaction_id=tx, record_sequence=seq)["sort_keys"]
        for at, tx, seq, n in places
    ]
    assert all(one < other for one, other in pairwise(keys))


def test_json_has_times_as_text():
    shown = facts_as_json(facts())
    assert shown["read_timestamp"] == shown["source_timestamp"] == "2023-11-14T22:13:20.123Z"
    assert shown["source_metadata"]["commit_timestamp"] == "2023-11-14T22:13:20.123456Z"
    assert facts()["source_metadata"]["commit_timestamp"] == SOURCE["commit_timestamp"]


@pytest.mark.parametrize(
    ("commit_us", "at"),
    [(1_700_000_000_000_000, "2023-11-14T22:13:20.000Z"),
     (1_700_000_000_000_999, "2023-11-14T22:13:20.000Z"),
     (1_700_000_000_010_000, "2023-11-14T22:13:20.010Z"), (0, "1970-01-01T00:00:00.000Z")],
)  # fmt: skip
def test_json_has_milliseconds_of_whole_seconds_too(commit_us, at):
    shown = facts_as_json(facts(commit_timestamp=commit_us))
    assert shown["read_timestamp"] == shown["source_timestamp"] == at


def test_coordinates_that_are_not_unicode_are_refused():
    with pytest.raises(SchemaError, match="not Unicode"):
        facts(server_transaction_id="\ud800")
    with pytest.raises(SchemaError, match="record sequence"):
        facts(record_sequence="x")
