"""A small bank in a core database, with a clock that only the test moves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from spanner_simulator.core.change_streams.records import ColumnType, DataChangeRecord
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.rows.expressions import Expressions
from spanner_simulator.core.rows.mutations import Mutation
from spanner_simulator.core.schema.ddl import parse_ddl

BANK = (
    "CREATE TABLE Accounts (Id INT64 NOT NULL, Balance INT64, Name STRING(MAX)) PRIMARY KEY (Id)",
    "CREATE TABLE Ledger (Id STRING(36) NOT NULL, Amount INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Bank FOR Accounts, Ledger",
)


class Bank:
    """A database and its time; every `commit` is one read-write transaction without reads."""

    def __init__(
        self,
        *,
        stream_partitions: int = 2,
        equal_timestamps: float = 0.0,
        expressions: Expressions | None = None,
        seed: int = 7,
        is_empty: bool = False,
    ) -> None:
        self.now_us = 1_000_000
        self.database = Database(
            "bank",
            random.Random(seed),
            DatabaseSettings(stream_partitions, equal_timestamps),
            expressions=expressions,
        )
        if not is_empty:
            self.ddl(*BANK)
        self.tick()

    def ddl(self, *statements: str) -> None:
        self.database.apply_ddl(statements, now_us=self.tick())

    def tick(self, microseconds: int = 10) -> int:
        self.now_us += microseconds
        return self.now_us

    def commit(self, *mutations: Mutation, tag: str = "") -> int:
        return self.database.commit(self.database.begin(tag=tag), mutations, now_us=self.tick())


def data_record(*mods: Mod, **changes: Any) -> DataChangeRecord:
    """A data change record of a table with a key, K, and one column, V."""
    columns = (
        ColumnType("K", '{"code":"INT64"}', True, 1),
        ColumnType("V", '{"code":"STRING"}', False, 2),
    )
    made = DataChangeRecord(
        *(10, "00000000", "7", True, "T", columns, mods), *("INSERT", "NEW_VALUES", 1, 1, "", False)
    )
    return made._replace(**changes)


@pytest.fixture
def bank() -> Bank:
    return Bank()


class PostgresBank(Bank):
    """The same in the other dialect, as far as change streams see it.

    The stream's name is lower case, as unquoted names are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.database.catalogue.dialect = "POSTGRESQL"
        self.now_us = 1_000_000
        self.ddl("DROP CHANGE STREAM Bank", "CREATE CHANGE STREAM bank FOR Accounts, Ledger")
        self.now_us = 1_000_040

    def ddl(self, *statements: str) -> None:
        self.database.apply_ddl([parse_ddl(one) for one in statements], now_us=self.tick())


@pytest.fixture
def postgres_bank() -> PostgresBank:
    return PostgresBank()


@pytest.fixture
def make_bank() -> Callable[..., Bank]:
    return Bank
