"""Two interleaved tables with a row of every type, in an engine with expressions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.values import Dialect, Plain, ValueType, encode
from spanner_simulator.sql.analysis import SqlAnalysis
from spanner_simulator.sql.engine import SqlEngine
from spanner_simulator.sql.expressions import DuckExpressions
from spanner_simulator.sql.parameter import Parameter
from unit.shop_protos import BUNDLE, shop_descriptors

NOW_US = 1_750_000_000_000_000
GOOGLE = (
    (
        "CREATE TABLE T (Id INT64 NOT NULL, S STRING(MAX), B BOOL, F FLOAT64, N NUMERIC, "
        "Y BYTES(MAX), D DATE, Ts TIMESTAMP OPTIONS (allow_commit_timestamp=true), J JSON, "
        "A ARRAY<STRING(MAX)>, AI ARRAY<INT64>) PRIMARY KEY (Id)"
    ),
    (
        "CREATE TABLE C (Id INT64 NOT NULL, K STRING(20) NOT NULL, V INT64 DEFAULT (7), "
        "G INT64 AS (V * 2) STORED) PRIMARY KEY (Id, K), INTERLEAVE IN PARENT T ON DELETE CASCADE"
    ),
    "CREATE INDEX TByS ON T(S)",
    "CREATE CHANGE STREAM CS FOR T",
)
GOOGLE_ROWS = (
    (
        "INSERT INTO T (Id,S,B,F,N,Y,D,Ts,J,A,AI) VALUES "
        r"(1,'a',true,1.5,NUMERIC '1.25',b'\x01\x02',DATE '2024-01-02',"
        "TIMESTAMP '2024-01-02 03:04:05.123456789Z',JSON '{\"z\":1,\"a\":[1,2]}',['x','y'],[1,2]),"
        "(2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),"
        "(3,'c',false,-0.5,NUMERIC '-3',b'',DATE '0001-01-01',TIMESTAMP '0001-01-01 00:00:00Z',"
        "JSON 'null',[],[NULL,3])"
    ),
    "INSERT INTO C (Id,K,V) VALUES (1,'a',10),(1,'b',20),(3,'a',DEFAULT)",
)
POSTGRES = (
    (
        "CREATE TABLE t (id bigint PRIMARY KEY, s varchar, b boolean, f double "
        "precision, n numeric, "
        "y bytea, d date, ts timestamptz, j jsonb, a varchar[], ai bigint[])"
    ),
    (
        "CREATE TABLE c (id bigint, k varchar(20), v bigint DEFAULT 7, PRIMARY KEY (id,k)) "
        "INTERLEAVE IN PARENT t ON DELETE CASCADE"
    ),
    "CREATE INDEX tbys ON t(s)",
)
POSTGRES_ROWS = (
    (
        "INSERT INTO t (id,s,b,f,n,y,d,ts,j,a,ai) VALUES "
        r"(1,'a',true,1.5,1.250,'\x0102','2024-01-02','2024-01-02 03:04:05.123456Z',"
        "'{\"z\":1,\"a\":[1,2]}',ARRAY['x','y'],ARRAY[1,2]),"
        "(2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),"
        "(3,'c',false,-0.5,-3,'','0001-01-01','9999-12-31 23:59:59.999999Z','null',NULL,NULL)"
    ),
    "INSERT INTO c (id,k,v) VALUES (1,'a',10),(1,'b',20),(3,'a',DEFAULT)",
)


@dataclass(frozen=True)
class Answer:
    """A result in plain form; `count` for DML."""

    columns: list[tuple[str, str]]
    rows: list[list[Plain]]
    count: int | None = None


def type_text(kind: ValueType) -> str:
    """A type as the recorded answers spell it."""
    if kind.element is not None:
        return f"ARRAY<{type_text(kind.element)}>"
    if kind.code == "STRUCT":
        inner = ", ".join(f"{name} {type_text(field)}" for name, field in kind.fields)
        return f"STRUCT<{inner}>"
    return kind.code + (f"/{kind.annotation}" if kind.annotation else "")


class World:
    """A database with an engine; every call is its own transaction unless one is given."""

    def __init__(
        self, ddl: Sequence[str], rows: Sequence[str], dialect: Dialect = "GOOGLE_STANDARD_SQL"
    ) -> None:
        self.database = Database(
            "world", random.Random(1), DatabaseSettings(), dialect,
            expressions=DuckExpressions(), analysis=SqlAnalysis,
        )  # fmt: skip
        self.ddl(*ddl)
        self.engine = SqlEngine(self.database)
        for sql in rows:
            self.run(sql)

    def run(
        self,
        sql: str,
        *,
        transaction: Transaction | None = None,
        check: Callable[[str, str], None] | None = None,
        **parameters: Plain | Parameter,
    ) -> Answer:
        """Run a query or DML; without a transaction DML is committed."""
        bound = {
            name: one if isinstance(one, Parameter) else Parameter(one)
            for name, one in parameters.items()
        }
        statement = self.engine.prepare(sql)
        count = None
        if statement.kind == "query":
            result = self.engine.query(
                statement,
                bound,
                transaction=transaction,
                read_us=None,
                now_us=NOW_US,
                check_privilege=check,
            )
            columns, rows = result.columns, result.rows
        else:
            writing = transaction or self.database.begin()
            done = self.engine.dml(
                statement, bound, transaction=writing, now_us=NOW_US, check_privilege=check
            )
            columns, rows, count = done.columns, done.rows, done.count
            if transaction is None:
                self.database.commit(writing, [], now_us=NOW_US)
        plain = [
            [encode(kind, value) for (_, kind), value in zip(columns, row, strict=True)]
            for row in rows
        ]
        return Answer([(name, type_text(kind)) for name, kind in columns], plain, count)

    def rows(self, sql: str, **parameters: Plain | Parameter) -> list[list[Plain]]:
        """Just the rows."""
        return self.run(sql, **parameters).rows

    def ddl(self, *statements: str, descriptors: bytes = b"") -> None:
        """Change the schema; the shop's messages are known."""
        protos = descriptors or shop_descriptors()
        self.database.apply_ddl(statements, now_us=NOW_US, proto_descriptors=protos)


SHOP = (
    BUNDLE,
    (
        "CREATE TABLE T (K INT64, C shop.Customer, E shop.Tier, A ARRAY<shop.Tier>, "
        "D shop.Tier DEFAULT ('GOLD'), G INT64 AS (CAST(D AS INT64)) STORED) PRIMARY KEY (K)"
    ),
    "CREATE TABLE ByTier (E shop.Tier, V INT64) PRIMARY KEY (E DESC)",
)
# One row with a member, one with a number that is none, one with NULL.
SHOP_ROWS = (
    "INSERT INTO T (K, C, E, A) VALUES (1, b'\\n\\003Ann', 'GOLD', [1, NULL])",
    "INSERT INTO T (K, E, D) VALUES (2, 77, 2), (3, NULL, NULL)",
    "INSERT INTO ByTier (E, V) VALUES ('SILVER', 5), (1, 6)",
)


def fixture(name: str, *made: Any, scope: Any = "function") -> Any:
    """A world as a fixture; one that a session shares is for queries only."""
    return pytest.fixture(scope=scope, name=name)(lambda: World(*made))


shop_fixture = fixture("shop", SHOP, SHOP_ROWS)
world_fixture = fixture("world", GOOGLE, GOOGLE_ROWS)
pg_world_fixture = fixture("pg_world", POSTGRES, POSTGRES_ROWS, "POSTGRESQL")
shared_shop_fixture = fixture("shared_shop", SHOP, SHOP_ROWS, scope="session")
shared_world_fixture = fixture("shared_world", GOOGLE, GOOGLE_ROWS, scope="session")
shared_pg_world_fixture = fixture(
    "shared_pg_world", POSTGRES, POSTGRES_ROWS, "POSTGRESQL", scope="session"
)
