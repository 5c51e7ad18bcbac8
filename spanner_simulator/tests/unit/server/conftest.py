"""The services without a network: a host with a settable clock, coroutines run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.database import DatabaseSettings
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.server.admin.database_admin import DatabaseAdminService
from spanner_simulator.server.admin.instance_admin import InstanceAdminService
from spanner_simulator.server.host import Host
from spanner_simulator.server.spanner_service import SpannerService

DATABASE = "projects/p/instances/inst/databases/bank"
STATEMENTS = [
    "CREATE TABLE Accounts (Id INT64 NOT NULL, Balance INT64, Name STRING(MAX)) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Bank FOR ALL",
]
QUERY = "SELECT ChangeRecord FROM READ_Bank(@start, @end, @token, @heartbeat)"


class Rig:
    """One host with one database; `now_us` moves only when a test moves it."""

    def __init__(self, **settings: Any) -> None:
        self.now_us = 1_000_000
        self.host = Host(
            seed=1,
            settings=DatabaseSettings(stream_partitions=2),
            now_us=lambda: self.now_us,
            linger_ms=0,
            **settings,
        )
        self.spanner = SpannerService(self.host)
        self.instances = InstanceAdminService(self.host)
        self.databases = DatabaseAdminService(self.host)

    def create(self) -> None:
        self.run(
            self.instances.create_instance(
                instance_admin.CreateInstanceRequest.pb()(parent="projects/p", instance_id="inst")
            )
        )
        self.run(
            self.databases.create_database(
                database_admin.CreateDatabaseRequest.pb()(
                    parent="projects/p/instances/inst",
                    create_statement="CREATE DATABASE `bank`",
                    extra_statements=STATEMENTS,
                )
            )
        )
        self.now_us += 100

    @property
    def database(self) -> Any:
        return self.host.databases[DATABASE].database

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(coroutine)

    def collect(self, messages: AsyncIterator[bytes]) -> list[Any]:
        async def gather() -> list[bytes]:
            return [message async for message in messages]

        found = asyncio.run(gather())
        return [spanner.PartialResultSet.pb().FromString(message) for message in found]

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the event loop turn until something holds; a test that waits in vain times out."""
        while not condition():  # noqa: ASYNC110  # what is waited for has no event to offer
            await asyncio.sleep(0.001)

    def session(self, role: str = "", *, multiplexed: bool = False) -> str:
        request = spanner.CreateSessionRequest.pb()(database=DATABASE)
        request.session.creator_role = role
        request.session.multiplexed = multiplexed
        name: str = self.run(self.spanner.create_session(request)).name
        return name

    def write(self, session: str, **values: str | None) -> Any:
        """Insert or update one row of Accounts."""
        self.now_us += 10
        request = spanner.CommitRequest.pb()(session=session)
        request.single_use_transaction.read_write.SetInParent()
        write = request.mutations.add().insert_or_update
        write.table = "Accounts"
        write.columns.extend(values)
        row = write.values.add()
        row.extend(list(values.values()))
        return self.run(self.spanner.commit(request))

    def insert(self, session: str, key: int, **options: Any) -> Any:
        self.now_us += 10
        request = spanner.CommitRequest.pb()(session=session, **options)
        if "transaction_id" not in options:
            request.single_use_transaction.read_write.SetInParent()
        write = request.mutations.add().insert
        write.table = "Accounts"
        write.columns.extend(["Id", "Balance"])
        row = write.values.add()
        row.values.add(string_value=str(key))
        row.values.add(string_value="10")
        return self.run(self.spanner.commit(request))

    def query(self, session: str, sql: str, **parameters: Any) -> Any:
        request = spanner.ExecuteSqlRequest.pb()(session=session, sql=sql)
        request.params.update(parameters)
        return request

    def change_query(self, session: str, token: str | None, **parameters: Any) -> Any:
        bound = {
            "start": format_us(self.now_us),
            "end": None,
            "token": token,
            "heartbeat": "1000",
            **parameters,
        }
        return self.query(session, QUERY, **bound)


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.create()
    return made


@pytest.fixture
def make_rig() -> Callable[..., Rig]:
    def make(**settings: Any) -> Rig:
        made = Rig(**settings)
        made.create()
        return made

    return make


@pytest.fixture
def empty_rig() -> Rig:
    return Rig()
