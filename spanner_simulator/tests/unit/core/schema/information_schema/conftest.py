"""A schema with one thing of each kind, and its INFORMATION_SCHEMA."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spanner_simulator.core.schema.information_schema import information_schema_table
from spanner_simulator.core.values import Dialect, Value

GOOGLE = (
    "CREATE SCHEMA ns",
    (
        "CREATE TABLE T (k INT64 NOT NULL, s STRING(MAX) DEFAULT ('x'), a INT64 NOT NULL, "
        "g INT64 AS (a+1) STORED, v INT64 AS (a), ts TIMESTAMP OPTIONS "
        "(allow_commit_timestamp=true), "
        "CONSTRAINT ck CHECK (a > k)) PRIMARY KEY (k DESC)"
    ),
    "CREATE NULL_FILTERED INDEX I ON T (a, s DESC) STORING (ts)",
    (
        "CREATE TABLE C (k INT64 NOT NULL, c INT64) PRIMARY KEY (k DESC, c), "
        "INTERLEAVE IN PARENT T ON DELETE CASCADE"
    ),
    "CREATE UNIQUE INDEX CI ON C(k DESC, c), INTERLEAVE IN T",
    "CREATE TABLE N (k INT64 NOT NULL, c INT64) PRIMARY KEY (k DESC, c), INTERLEAVE IN T",
    (
        "CREATE TABLE F (k INT64, a INT64, b INT64, CONSTRAINT f1 FOREIGN KEY (a) REFERENCES T (k) "
        "ON DELETE CASCADE, CONSTRAINT f2 FOREIGN KEY (a, b) REFERENCES T (k, a), "
        "CONSTRAINT f3 FOREIGN KEY (b) REFERENCES F (a) NOT ENFORCED) PRIMARY KEY (k)"
    ),
    (
        "CREATE TABLE ns.R (k INT64, ts TIMESTAMP) PRIMARY KEY (k), "
        "ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 3 DAY))"
    ),
    "CREATE VIEW V SQL SECURITY INVOKER AS SELECT T.a FROM T",
    "CREATE CHANGE STREAM S FOR T(a), ns.R OPTIONS (retention_period='36h', exclude_insert=true)",
    "CREATE CHANGE STREAM Everything FOR ALL",
    "CREATE ROLE reader",
    "CREATE ROLE boss",
    "GRANT SELECT, DELETE ON TABLE N TO ROLE reader",
    "GRANT SELECT ON VIEW V TO ROLE reader",
    "GRANT SELECT ON CHANGE STREAM S TO ROLE reader",
    "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE reader",
    "GRANT ROLE reader TO ROLE boss",
    "ALTER DATABASE d SET OPTIONS (version_retention_period = '2d')",
)
POSTGRES = (
    "CREATE SCHEMA ns",
    (
        "CREATE TABLE t (k bigint PRIMARY KEY, s varchar(9) DEFAULT 'x', ct "
        "spanner.commit_timestamp, "
        "arr varchar(3)[], n numeric, ts timestamptz, g bigint GENERATED ALWAYS AS (k) STORED, "
        "CONSTRAINT ck CHECK (k > 1)) TTL INTERVAL '3 days' ON ts"
    ),
    "CREATE INDEX i ON t (s DESC, ts NULLS FIRST) INCLUDE (ct) WHERE s IS NOT NULL",
    "CREATE TABLE ns.u (k bigint PRIMARY KEY, a bigint, FOREIGN KEY (a) REFERENCES ns.u (a))",
    "CREATE CHANGE STREAM s FOR t(s) WITH (retention_period = '36h')",
    "CREATE CHANGE STREAM everything FOR ALL",
    "CREATE CHANGE STREAM m WITH (partition_mode = 'MUTABLE_KEY_RANGE')",
)


@pytest.fixture
def shown(make) -> Callable[..., list[tuple[Value, ...]]]:
    """The rows of a view, as tuples of some of its columns."""

    def rows(
        view: str,
        names: str,
        dialect: Dialect = "GOOGLE_STANDARD_SQL",
        **where: Value,
    ) -> list[tuple[Value, ...]]:
        statements = GOOGLE if dialect == "GOOGLE_STANDARD_SQL" else POSTGRES
        _, found = information_schema_table(make(*statements, dialect=dialect).catalogue, view)
        found = [{name.lower(): value for name, value in row.items()} for row in found]
        return [
            tuple(row[name] for name in names.split())
            for row in found
            if all(row[name] == value for name, value in where.items())
        ]

    return rows
