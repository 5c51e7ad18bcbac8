from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tidegate.spanner_simulator import Simulator, SimulatorConfig
from tidegate.spanner_simulator.core.database import DatabaseSettings
from tidegate.spanner_simulator.core.rows.mutations import Write
from tidegate.spanner_simulator.core.schema.ddl import parse_ddl
from tidegate.spanner_simulator.server.host import HostedDatabase

NAME = "projects/p/instances/i/databases/bank"
WHERE = "database=bank&stream=Bank"


class Port:
    """The control port of a simulator that has one database with one row."""

    def __init__(self, simulator: Simulator) -> None:
        self._address = simulator.control_address

    def get(self, path: str) -> tuple[int, Any]:
        return self._open(urllib.request.Request(f"http://{self._address}{path}"))

    def post(self, path: str, body: object) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._open(urllib.request.Request(f"http://{self._address}{path}", data=data))

    def _open(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                lines = reply.read().decode().splitlines()
                if reply.headers["Content-Type"] == "application/x-ndjson":
                    return reply.status, [json.loads(line) for line in lines]
                return reply.status, json.loads(lines[0])
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def port() -> Iterator[Port]:
    with Simulator(SimulatorConfig(stream_partitions=2)) as simulator:
        host = simulator.control._host

        def prepare() -> None:
            database = host.create_database(NAME)
            statements = (
                "CREATE TABLE A (K INT64) PRIMARY KEY (K)",
                "CREATE CHANGE STREAM Bank FOR A",
            )
            database.apply_ddl([parse_ddl(one) for one in statements], now_us=host.now_us())
            host.databases[NAME] = HostedDatabase(database, created_us=host.now_us())
            for key in ("5", "7"):
                write = Write("insert", "A", ("K",), ([key],))
                database.commit(database.begin(), [write], now_us=host.now_us())

        simulator.control._on_loop(prepare)
        yield Port(simulator)


def test_settings_default_to_two_stream_partitions() -> None:
    assert DatabaseSettings().stream_partitions == SimulatorConfig().stream_partitions == 2


def test_health(port: Port) -> None:
    assert port.get("/health") == (200, {"status": "ok", "databases": [NAME]})


def test_stream_partitions_have_bounds_counts_and_readers(port: Port) -> None:
    status, body = port.get(f"/stream-partitions?{WHERE}")
    low, high = body["stream_partitions"]

    assert status == 200
    assert low["high"]["table"] == "A"
    assert low["high"]["key"] == ["0"]
    assert (low["records"], high["records"]) == (0, 2)
    assert high["high"] is None
    assert high["recently_written_keys"] == 2
    assert high["tables"] == ["A"]
    assert high["readers"] == 0


def test_split_by_key_then_merge_then_move(port: Port) -> None:
    status, split = port.post(
        "/split", {"database": "bank", "stream": "Bank", "table": "A", "key": ["6"]}
    )
    left, right = split["children"]
    tokens = [right["token"], left["token"]]
    _, merged = port.post("/merge", {"database": "bank", "stream": "Bank", "tokens": tokens})
    _, moved = port.post(
        "/move", {"database": "bank", "stream": "Bank", "token": merged["children"][0]["token"]}
    )

    assert status == 200
    assert left["high"]["key"] == right["low"]["key"] == ["6"]
    assert sorted(merged["parents"]) == sorted(tokens)
    assert moved["children"][0]["low"] == left["low"]
    assert moved["start_timestamp_us"] > merged["start_timestamp_us"]


def test_without_arguments_the_busiest_is_split_and_a_pair_merged(port: Port) -> None:
    _, split = port.post("/split", {"database": "bank", "stream": "Bank"})
    _, merged = port.post("/merge", {"database": "bank", "stream": "Bank"})

    assert split["children"][1]["low"]["key"] == ["7"]
    assert sorted(merged["parents"]) == sorted(one["token"] for one in split["children"])


def test_the_commit_log_in_lines_from_a_number_on(port: Port) -> None:
    _, everything = port.get(f"/commit-log?{WHERE}")
    _, rest = port.get(f"/commit-log?{WHERE}&from=1")

    assert [line["index"] for line in everything] == [0, 1]
    assert rest == everything[1:]
    assert rest[0]["changes"][0]["keys"] == {"K": "7"}


def test_churn_starts_and_stops(port: Port) -> None:
    where = {"database": "bank", "stream": "Bank"}

    assert port.post("/churn", {**where, "mean_life_ms": 60_000, "seed": 1}) == (
        200,
        {"enabled": True},
    )
    assert port.post("/churn", {**where, "enabled": False}) == (200, {"enabled": False})


def test_interrupt_counts_the_queries_that_it_ended(port: Port) -> None:
    body = {"database": "bank", "stream": "Bank", "code": "UNAVAILABLE"}

    assert port.post("/interrupt", body) == (200, {"interrupted": 0})


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/split", {"database": "nope", "stream": "Bank"}, 404),
        ("/split", {"database": "bank", "stream": "Nope"}, 404),
        ("/split", {"database": "bank", "stream": "Bank", "token": "x"}, 404),
        ("/split", {"database": "bank"}, 400),
        ("/split", {"database": "bank", "stream": "Bank", "bogus": 1}, 400),
        ("/split", b"[", 400),
        ("/split", b"[]", 400),
        ("/merge", {"database": "bank", "stream": "Bank", "tokens": ["x"]}, 404),
        ("/churn", {"database": "bank", "stream": "Bank", "mean_life_ms": 0}, 400),
        ("/churn", {"database": "bank", "stream": "Bank", "weights": {"jump": 1}}, 400),
        ("/interrupt", {"database": "bank", "stream": "Bank", "code": "FINE"}, 400),
        ("/nothing", {}, 404),
    ],
)
def test_refusals(port: Port, path: str, body: object, status: int) -> None:
    found, answer = port.post(path, body)

    assert found == status
    assert answer["message"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/stream-partitions?database=bank", 400),
        ("/commit-log?stream=Bank", 400),
        (f"/commit-log?{WHERE}&from=x", 400),
        ("/commit-log?database=bank&stream=Nope", 404),
        ("/nothing", 404),
    ],
)
def test_refused_questions(port: Port, path: str, status: int) -> None:
    found, answer = port.get(path)

    assert found == status
    assert answer["message"]
