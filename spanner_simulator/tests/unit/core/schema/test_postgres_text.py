from __future__ import annotations

import pytest

from spanner_simulator.core.schema.postgres_text import PostgresText

# Each statement as it was written, and as the service prints it.
STATEMENTS = [
    (
        (
            "CREATE TABLE singers (id bigint NOT NULL, \"Name\" varchar(10) NOT NULL DEFAULT 'x', "
            "t text, f4 real, f8 double precision, n numeric, by bytea, ts timestamptz DEFAULT "
            "CURRENT_TIMESTAMP, ct spanner.commit_timestamp, j jsonb, arr bigint[], ta text[], cv "
            "varchar(20), i int8, "
            'g varchar GENERATED ALWAYS AS (upper("Name")) STORED, CONSTRAINT ck CHECK (id > i), '
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
            '  g character varying GENERATED ALWAYS AS (upper("Name")) STORED,\n'
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
    (
        (
            "CREATE UNIQUE INDEX i1 ON singers (t DESC NULLS LAST, cv) INCLUDE (n) WHERE t IS NOT "
            "NULL"
        ),
        (
            "CREATE UNIQUE INDEX i1 ON singers (t DESC NULLS LAST, cv) INCLUDE (n) WHERE t IS NOT "
            "NULL"
        ),
    ),
    (
        (
            "CREATE INDEX i3 ON singers (t NULLS FIRST, i ASC NULLS LAST, f8 DESC, f4 DESC NULLS "
            "FIRST)"
        ),
        "CREATE INDEX i3 ON singers (t NULLS FIRST, i, f8 DESC, f4 DESC)",
    ),
    (
        'CREATE INDEX i4 ON C (id, "Name", c) INTERLEAVE IN singers',
        'CREATE INDEX i4 ON c (id, "Name", c) INTERLEAVE IN singers',
    ),
    (
        "CREATE VIEW v1 SQL SECURITY INVOKER AS SELECT id FROM singers",
        "CREATE VIEW v1 SQL SECURITY INVOKER AS SELECT id FROM singers",
    ),
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
    ("CREATE CHANGE STREAM s4", "CREATE CHANGE STREAM s4"),
    ("CREATE ROLE r", "CREATE ROLE r"),
    ("CREATE ROLE q", "CREATE ROLE q"),
    ("GRANT r TO q", "GRANT r TO q"),
    (
        "GRANT EXECUTE ON FUNCTION spanner.read_json_s1 TO r",
        "GRANT EXECUTE ON FUNCTION spanner.read_json_s1 TO r",
    ),
    (
        "ALTER DATABASE db SET spanner.default_leader = 'us-east1'",
        "ALTER DATABASE db SET \"spanner.default_leader\" = 'us-east1'",
    ),
]


def test_statements_are_printed_as_the_service_prints_them(make) -> None:
    made = make(*(written for written, _ in STATEMENTS), dialect="POSTGRESQL")

    assert sorted(made.ddl()) == sorted(printed for _, printed in STATEMENTS)


def test_the_text_makes_the_same_schema_again(make) -> None:
    statements = [written for written, _ in STATEMENTS]
    text = make(*statements, dialect="POSTGRESQL").ddl()

    assert make(*text, dialect="POSTGRESQL").ddl() == text


@pytest.mark.parametrize(
    ("name", "text"),
    [("t", "t"), ("T", '"T"'), ("select", '"select"'), ('a"b', '"a""b"'), ("s.Tab", 's."Tab"')],
)
def test_names_are_quoted_where_they_must_be(name: str, text: str) -> None:
    assert PostgresText().quoted(name) == text
