"""A query that breaks its own promises is told, and its records come in one form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from differential.kinds import POSTGRES
from differential.side import Failure, Rows
from differential.stream_reading import StreamReading, read_stream

END = "2026-01-01T00:09:00Z"


def at(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00+00:00"


def heartbeat(minute: int) -> dict[str, Any]:
    return {"heartbeat_record": {"timestamp": at(minute)}}


def children(minute: int, *tokens: str) -> dict[str, Any]:
    some = [{"token": one, "parent_partition_tokens": ["a"]} for one in tokens]
    return {"child_partitions_record": {"start_timestamp": at(minute), "child_partitions": some}}


def data(minute: int) -> dict[str, Any]:
    return {
        "data_change_record": {
            "commit_timestamp": at(minute),
            "record_sequence": "00000000",
            "server_transaction_id": "7",
            "is_last_record_in_transaction_in_partition": True,
            "table_name": "t",
            "column_types": [],
            "mods": [{"keys": {"k": "1"}, "new_values": {}, "old_values": None}],
            "mod_type": "INSERT",
            "value_capture_type": "NEW_ROW",
            "number_of_records_in_transaction": 1,
            "number_of_partitions_in_transaction": 1,
            "transaction_tag": "",
            "is_system_transaction": False,
        }
    }


class Answers:
    """A side that answers a query by its token."""

    def __init__(self, **rows: Any) -> None:
        self._rows = rows

    def stream(self, _: str, parameters: Any) -> Any:
        token = parameters["p3"][0]
        found = [children(0, "a")] if token is None else self._rows[token]
        if isinstance(found, Failure):
            return found
        return Rows([("read_json_s", {})], [[json.dumps(row)] for row in found])


def read(**rows: Any) -> StreamReading:
    side: Any = Answers(**rows)
    reading = read_stream(side, "s", dialect=POSTGRES, start=at(0), end=END)
    assert isinstance(reading, StreamReading)
    return reading


def test_children_are_followed_once():
    rows = [data(1), heartbeat(2), data(3), children(4, "b", "c"), children(4, "b")]
    reading = read(a=rows, b=[heartbeat(9)], c=[data(5)])
    assert [(one.token, int(one.commit_timestamp[14:16])) for one in reading.records] == [
        ("a", 1),
        ("a", 3),
        ("c", 5),
    ]
    assert {"a": {"a"}, "b": {"a"}, "c": {"a"}} == reading.parents
    assert reading.records[0].mods[0].nulls == ("old_values",)
    assert reading.faults == []


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("data at 2026-01-01T00:02:00.000000Z after a heartbeat at", [heartbeat(2), data(2)]),
        ("heartbeat at 2026-01-01T00:02:00.000000Z after a", [heartbeat(3), heartbeat(2)]),
        ("a heartbeat at 2026-01-01T00:10:00.000000Z, after the query's end", [heartbeat(10)]),
        ("data after the children of a stream partition", [children(4), data(3)]),
        ("query of a stream partition: OUT_OF_RANGE too old", Failure("OUT_OF_RANGE", "too old")),
    ],
)
def test_a_broken_promise_is_told(text: str, rows: Any):
    (told,) = read(a=rows).faults
    assert told.startswith(text)
