"""A running simulator with one small database, and its control port."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from spanner_simulator import Simulator
from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.server.host import Host

DDL = ["CREATE TABLE A (K INT64) PRIMARY KEY (K)", "CREATE CHANGE STREAM Bank FOR A"]


class Port:
    """The control port, asked as anybody would."""

    def __init__(self, simulator: Simulator) -> None:
        self._address = simulator.control_address

    def get(self, path: str) -> tuple[int, Any]:
        return self._open(urllib.request.Request(f"http://{self._address}{path}"))

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://{self._address}{path}"
        return self._open(urllib.request.Request(url, data=data, headers=headers or {}))

    def _open(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                lines = reply.read().decode().splitlines()
                if reply.headers["Content-Type"] == "application/x-ndjson":
                    return reply.status, [json.loads(line) for line in lines]
                return reply.status, json.loads(lines[0])
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


def insert(simulator: Simulator, *keys: int) -> None:
    """One transaction for each key."""

    def act(host: Host) -> None:
        database = host.database("bank").database
        for key in keys:
            write = Write("insert", "A", ("K",), ([str(key)],))
            database.commit(database.begin(), [write], now_us=host.now_us())

    simulator._run(act)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(stream_partitions=2) as running:
        running.create_database("bank", ddl=DDL)
        insert(running, 5, 7)
        yield running


@pytest.fixture
def port(simulator: Simulator) -> Port:
    return Port(simulator)
