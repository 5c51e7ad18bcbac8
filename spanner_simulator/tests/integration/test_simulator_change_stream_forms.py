"""The official Python client reads each form of change stream rows."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import spanner
from google.cloud.spanner_v1 import param_types
from google.cloud.spanner_v1 import types as spanner_types

from spanner_simulator import Simulator
from spanner_simulator.core.timestamps import format_us

MUTABLE = "partition_mode = 'MUTABLE_KEY_RANGE'"
POSTGRES = "CREATE TABLE t (k bigint PRIMARY KEY, v varchar, n numeric, a bigint[])"
GOOGLE = "CREATE TABLE t (k INT64, v STRING(MAX), n NUMERIC, a ARRAY<INT64>) PRIMARY KEY (k)"
STREAM = "CREATE CHANGE STREAM s FOR ALL"
# By form: the dialect, the schema and the query.
SCHEMAS: dict[str, tuple[Any, list[str], str]] = {
    "postgres": (
        "POSTGRESQL",
        [POSTGRES, STREAM],
        'SELECT * FROM "spanner"."read_json_s"($1, $2, $3, $4, null)',
    ),
    "mutable": (
        "GOOGLE_STANDARD_SQL",
        [GOOGLE, f"{STREAM} OPTIONS ({MUTABLE})"],
        "SELECT ChangeRecord FROM READ_s(@p1, @p2, @p3, @p4)",
    ),
    "mutable postgres": (
        "POSTGRESQL",
        [POSTGRES, f"{STREAM} WITH ({MUTABLE})"],
        "SELECT * FROM spanner.read_proto_bytes_s($1, $2, $3, $4, null)",
    ),
}
TYPES = {
    "p1": param_types.TIMESTAMP,
    "p2": param_types.TIMESTAMP,
    "p3": param_types.STRING,
    "p4": param_types.INT64,
}


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(stream_partitions=2, seed=3) as running:
        yield running


class Stream:
    """A change stream in one of the forms; rows come back as plain dictionaries."""

    numbers = itertools.count()

    def __init__(self, simulator: Simulator, form: str) -> None:
        dialect, ddl, self.query = SCHEMAS[form]
        self.simulator, self.form = simulator, form
        self.name = f"forms{next(self.numbers)}"
        simulator.create_database(self.name, ddl=ddl, dialect=dialect)
        instance = spanner.Client(project="test-project").instance("test-instance")
        self.database = instance.database(self.name)
        one = simulator.stream_partitions(self.name, "s")[0]
        self.opened_us: int = one["start_timestamp_us"]

    def insert(self, *rows: list[Any]) -> int:
        with self.database.batch() as batch:
            batch.insert("t", ["k", "v", "n", "a"], rows)
        at: Any = batch.committed
        return int(at.timestamp()) * 10**6 + at.microsecond

    def read(
        self, token: str | None, start_us: int, end_us: int | None, heartbeat: int = 1000
    ) -> Iterator[dict[str, Any]]:
        values = {
            "p1": format_us(start_us),
            "p2": None if end_us is None else format_us(end_us),
            "p3": token,
            "p4": heartbeat,
        }
        with self.database.snapshot() as snapshot:
            for (value,) in snapshot.execute_sql(self.query, values, TYPES, timeout=60):
                yield self.decode(value)

    def decode(self, value: Any) -> dict[str, Any]:
        if self.form == "postgres":
            found: dict[str, Any] = json.loads(json.dumps(value))
            return found
        # The client hands BYTES out as base64, and a PROTO that it does not know as its bytes.
        raw = base64.b64decode(value) if "postgres" in self.form else value
        record = spanner_types.ChangeStreamRecord.deserialize(raw)
        kind = spanner_types.ChangeStreamRecord.pb(record).WhichOneof("record")
        return {kind: getattr(record, kind)}

    def tokens(self) -> list[str]:
        found = []
        for row in self.read(None, self.opened_us, self.opened_us + 1):
            ((kind, record),) = row.items()
            if kind == "child_partitions_record":
                found += [one["token"] for one in record["child_partitions"]]
            else:
                found += list(record.partition_tokens)
        return found


@pytest.fixture(params=SCHEMAS)
def stream(
    request: pytest.FixtureRequest, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> Stream:
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", simulator.grpc_address)
    monkeypatch.setenv("SPANNER_DISABLE_BUILTIN_METRICS", "true")
    return Stream(simulator, request.param)


def values_of(kind: str, record: Any) -> list[Any]:
    """The column v of a data change record's mods."""
    if isinstance(record, dict):
        return [mod["new_values"]["v"] for mod in record["mods"]]
    names = [column.name for column in record.column_metadata]
    return [
        value.value
        for mod in record.mods
        for value in mod.new_values
        if names[value.column_metadata_index] == "v"
    ]


def test_rows_of_all_sizes_come_whole(stream: Stream) -> None:
    texts = ["a", "ä" * 700_000, "", "b" * 2_000_000]
    last_us = stream.insert(*([number, text, None, [1, None]] for number, text in enumerate(texts)))
    found = []
    for token in stream.tokens():
        for row in stream.read(token, stream.opened_us, last_us):
            ((kind, record),) = row.items()
            if kind == "data_change_record":
                found += values_of(kind, record)
            else:
                assert kind == "heartbeat_record"
    assert found == texts


def test_an_interrupted_query_loses_and_repeats_nothing(stream: Stream) -> None:
    token = stream.tokens()[-1]
    stream.insert([1, "before", None, None])
    found: list[Any] = []
    seen = threading.Semaphore(0)

    def read() -> None:
        for row in stream.read(token, stream.opened_us, stream.opened_us + 1_700_000_000):
            ((kind, record),) = row.items()
            if kind == "data_change_record":
                found.extend(values_of(kind, record))
                seen.release()
            elif kind in ("child_partitions_record", "partition_end_record"):
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert seen.acquire(timeout=30)
    for number in range(3):
        stream.simulator.interrupt(stream.name, "s", token=token)
        stream.insert([10 + number, f"after {number}", None, None])
        assert seen.acquire(timeout=30)
    stream.simulator.split(stream.name, "s", token=token)
    thread.join(30)
    assert not thread.is_alive()
    assert found == ["before", "after 0", "after 1", "after 2"]


def test_a_large_backlog_is_read_by_resuming_after_every_few_rows(stream: Stream) -> None:
    last_us = 0
    for number in range(40):
        last_us = stream.insert([number, f"{number}", None, None])
    token = stream.tokens()[-1]
    for after in (1, 7, 39):
        stream.simulator.add_fault(
            method="ExecuteStreamingSql", token=token, when="after_rows", after_rows=after
        )
    found = []
    for row in stream.read(token, stream.opened_us, last_us):
        ((kind, record),) = row.items()
        if kind == "data_change_record":
            found += values_of(kind, record)
    assert found == [str(number) for number in range(40)]
