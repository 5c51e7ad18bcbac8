from __future__ import annotations

import pytest

from spanner_simulator.core.values import Dialect

# Each statement as it was written, and as the service prints it; None: as it was written.
GOOGLE = [
    ("CREATE SCHEMA n", None),
    (
        (
            "CREATE TABLE P (id INT64 NOT NULL, s STRING(MAX) NOT NULL DEFAULT ('x'), "
            "ts TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true), "
            "g STRING(MAX) AS ( UPPER(s) ) STORED, v INT64 AS (id+1), arr ARRAY<STRING(10)>, "
            "u UUID, f FLOAT32, CONSTRAINT ck CHECK ( id > 0 ), CHECK(id<9),) "
            "PRIMARY KEY (id DESC, s), ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 30 DAY))"
        ),
        (
            "CREATE TABLE P (\n"
            "  id INT64 NOT NULL,\n"
            "  s STRING(MAX) NOT NULL DEFAULT ('x'),\n"
            "  ts TIMESTAMP NOT NULL OPTIONS (\n"
            "    allow_commit_timestamp = true\n"
            "  ),\n"
            "  g STRING(MAX) AS (UPPER(s)) STORED,\n"
            "  v INT64 AS (id+1),\n"
            "  arr ARRAY<STRING(10)>,\n"
            "  u UUID,\n"
            "  f FLOAT32,\n"
            "  CONSTRAINT ck CHECK(id > 0),\n"
            "  CHECK(id<9),\n"
            ") PRIMARY KEY(id DESC, s), ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 30 DAY))"
        ),
    ),
    (
        (
            "CREATE TABLE C (id INT64 NOT NULL, s STRING(MAX) NOT NULL) PRIMARY KEY (id DESC, s), "
            "INTERLEAVE IN PARENT P ON DELETE CASCADE"
        ),
        (
            "CREATE TABLE C (\n"
            "  id INT64 NOT NULL,\n"
            "  s STRING(MAX) NOT NULL,\n"
            ") PRIMARY KEY(id DESC, s),\n"
            "  INTERLEAVE IN PARENT P ON DELETE CASCADE"
        ),
    ),
    (
        "CREATE TABLE `Select` (a INT64 PRIMARY KEY, `order` INT64, `a.b` TIMESTAMP)",
        (
            "CREATE TABLE `Select` (\n"
            "  a INT64,\n"
            "  `order` INT64,\n"
            "  `a.b` TIMESTAMP,\n"
            ") PRIMARY KEY(a)"
        ),
    ),
    (
        "create unique null_filtered index I1 on P (id, s desc) storing (arr)",
        "CREATE UNIQUE NULL_FILTERED INDEX I1 ON P(id, s DESC) STORING (arr)",
    ),
    ("CREATE TABLE n.T (a INT64) PRIMARY KEY()", "CREATE TABLE n.T (\n  a INT64,\n) PRIMARY KEY()"),
    ("CREATE INDEX n.I ON n.T(a)", None),
    (
        (
            "CREATE CHANGE STREAM S FOR p(ARR), `C` , `Select`() OPTIONS (retention_period='36h', "
            "exclude_insert=true)"
        ),
        (
            "CREATE CHANGE STREAM S FOR P(arr), C, `Select`() OPTIONS ( retention_period = '36h', "
            "exclude_insert = true )"
        ),
    ),
    ("CREATE CHANGE STREAM Everything FOR ALL", None),
    ("CREATE CHANGE STREAM Nothing", None),
    ("CREATE ROLE r", None),
    ("GRANT SELECT ON CHANGE STREAM S TO ROLE r", "GRANT SELECT ON CHANGE STREAM s TO ROLE r"),
]
POSTGRES = [
    (
        (
            "CREATE TABLE singers (id bigint NOT NULL, \"Name\" varchar(10) NOT NULL DEFAULT 'x', "
            "t text, f4 real, f8 double precision, n numeric, by bytea, ts timestamptz DEFAULT "
            "CURRENT_TIMESTAMP, ct spanner.commit_timestamp, j jsonb, arr bigint[], ta text[3], cv "
            "character varying(20), i int8, b boolean, u uuid, da date ARRAY, iv interval, "
            'g varchar GENERATED ALWAYS AS (upper("Name")) STORED, CONSTRAINT ck CHECK (id > i), '
            "v bigint NULL GENERATED ALWAYS AS (id + 1) VIRTUAL, "
            "CHECK (n IS NULL), PRIMARY KEY (id, \"Name\")) TTL INTERVAL '5 days' ON ts"
        ),
        (
            "CREATE TABLE singers (\n"
            "  id bigint NOT NULL,\n"
            "  \"Name\" character varying(10) DEFAULT 'x' NOT NULL,\n"
            "  t character varying,\n"
            "  f4 real,\n"
            "  f8 double precision,\n"
            "  n numeric,\n"
            "  by bytea,\n"
            "  ts timestamp with time zone DEFAULT CURRENT_TIMESTAMP,\n"
            "  ct spanner.commit_timestamp,\n"
            "  j jsonb,\n"
            "  arr bigint[],\n"
            "  ta character varying[],\n"
            "  cv character varying(20),\n"
            "  i bigint,\n"
            "  b boolean,\n"
            "  u uuid,\n"
            "  da date[],\n"
            "  iv interval,\n"
            '  g character varying GENERATED ALWAYS AS (upper("Name")) STORED,\n'
            "  v bigint GENERATED ALWAYS AS (id + 1) VIRTUAL,\n"
            '  PRIMARY KEY(id, "Name"),\n'
            "  CONSTRAINT ck CHECK(id > i),\n"
            "  CHECK(n IS NULL)\n"
            ") TTL INTERVAL '5 DAYS' ON ts"
        ),
    ),
    (
        (
            'CREATE TABLE C (id bigint, "Name" varchar(10), c bigint, PRIMARY KEY (id, "Name", c)) '
            "INTERLEAVE IN PARENT singers ON DELETE CASCADE"
        ),
        (
            "CREATE TABLE c (\n"
            "  id bigint NOT NULL,\n"
            '  "Name" character varying(10) NOT NULL,\n'
            "  c bigint NOT NULL,\n"
            '  PRIMARY KEY(id, "Name", c)\n'
            ") INTERLEAVE IN PARENT singers ON DELETE CASCADE"
        ),
    ),
    ("CREATE UNIQUE INDEX i1 ON singers (t DESC, cv) INCLUDE (n)", None),
    (
        (
            "CREATE CHANGE STREAM S1 FOR Singers, C() WITH (exclude_insert=true, "
            "retention_period='36h')"
        ),
        (
            "CREATE CHANGE STREAM s1\n"
            "FOR singers, c()\n"
            "WITH (retention_period = '36h', exclude_insert = true)"
        ),
    ),
    ("CREATE CHANGE STREAM s3 FOR ALL", "CREATE CHANGE STREAM s3\nFOR ALL"),
    ("CREATE CHANGE STREAM s4", None),
    ("CREATE ROLE r", None),
    ("GRANT EXECUTE ON FUNCTION spanner.read_json_s1 TO r", None),
]


@pytest.mark.parametrize(
    ("dialect", "statements"), [("GOOGLE_STANDARD_SQL", GOOGLE), ("POSTGRESQL", POSTGRES)]
)
def test_statements_are_printed_as_the_service_prints_them(
    make, dialect: Dialect, statements: list[tuple[str, str | None]]
) -> None:
    text = make(*(written for written, _ in statements), dialect=dialect).ddl()
    assert sorted(text) == sorted(printed or written for written, printed in statements)
    assert make(*text, dialect=dialect).ddl() == text
