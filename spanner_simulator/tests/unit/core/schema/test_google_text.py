from __future__ import annotations

import pytest

from spanner_simulator.core.schema.google_text import GoogleText

# Each statement as it was written, and as the service prints it.
STATEMENTS = [
    (
        (
            "CREATE TABLE P (id INT64 NOT NULL, s STRING(MAX) NOT NULL DEFAULT ('x'), "
            "ts TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true), "
            "g STRING(MAX) AS ( UPPER(s) ) STORED, v INT64 AS (id+1), arr ARRAY<STRING(10)>, "
            "CONSTRAINT ck CHECK ( id > 0 ), CHECK(id<9)) PRIMARY KEY (id DESC, s), "
            "ROW DELETION POLICY (OLDER_THAN(ts, INTERVAL 30 DAY))"
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
        (
            "CREATE TABLE `Select` (a INT64, `order` INT64, FOREIGN KEY (a) REFERENCES `Select` "
            "(`order`) NOT ENFORCED) PRIMARY KEY ()"
        ),
        (
            "CREATE TABLE `Select` (\n"
            "  a INT64,\n"
            "  `order` INT64,\n"
            "  FOREIGN KEY(a) REFERENCES `Select`(`order`) NOT ENFORCED,\n"
            ") PRIMARY KEY()"
        ),
    ),
    (
        "create unique null_filtered index I1 on P (id, s desc) storing (arr)",
        "CREATE UNIQUE NULL_FILTERED INDEX I1 ON P(id, s DESC) STORING (arr)",
    ),
    (
        "CREATE INDEX I2 ON C(id DESC, s), INTERLEAVE IN P",
        "CREATE INDEX I2 ON C(id DESC, s), INTERLEAVE IN P",
    ),
    (
        "CREATE INDEX I3 ON C(s) WHERE s IS NOT NULL",
        "CREATE INDEX I3 ON C(s) WHERE s IS NOT NULL",
    ),
    (
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT  P.id FROM P",
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT  P.id FROM P",
    ),
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
    ("CREATE CHANGE STREAM Everything FOR ALL", "CREATE CHANGE STREAM Everything FOR ALL"),
    ("CREATE ROLE r", "CREATE ROLE r"),
    (
        "GRANT SELECT ON CHANGE STREAM S TO ROLE r",
        "GRANT SELECT ON CHANGE STREAM s TO ROLE r",
    ),
]


def test_statements_are_printed_as_the_service_prints_them(make) -> None:
    made = make(*(written for written, _ in STATEMENTS))

    assert sorted(made.ddl()) == sorted(printed for _, printed in STATEMENTS)


@pytest.mark.parametrize(
    ("name", "text"),
    [("T", "T"), ("order", "`order`"), ("a.By", "a.`By`"), ("my-db", "`my-db`")],
)
def test_names_are_quoted_where_they_must_be(name: str, text: str) -> None:
    assert GoogleText().quoted(name) == text
