"""A simulator, and the bank in it, as the official Python client finds it by the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.cloud import spanner

from conformance.bank import ACCOUNTS, TABLES, account
from spanner_simulator import Simulator, SimulatorConfig


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    config = SimulatorConfig(stream_partitions=8, seed=11, equal_timestamps=0.5)
    with Simulator(config) as running:
        monkeypatch.setenv("SPANNER_EMULATOR_HOST", running.grpc_address)
        monkeypatch.setenv("SPANNER_DISABLE_BUILTIN_METRICS", "true")
        yield running


@pytest.fixture
def connect(simulator: Simulator) -> Callable[..., Any]:
    """Databases of one client; the first call makes the instance and the bank."""
    instance = spanner.Client(project="p").instance("inst", "projects/p/instanceConfigs/c")
    instance.create().result(30)
    instance.database("bank", ddl_statements=TABLES).create().result(30)

    def database(**options: Any) -> Any:
        return instance.database("bank", **options)

    return database


@pytest.fixture
def bank(connect: Callable[..., Any]) -> Any:
    """The bank with its accounts opened, all at one time."""
    database = connect()
    # Keys on both sides of 0 lie in different stream partitions.
    with database.batch() as batch:
        batch.insert("Accounts", ["Id", "Balance"], [[account(n), 100] for n in range(ACCOUNTS)])
    database.opened_at = batch.committed
    return database
