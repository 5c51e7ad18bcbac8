from __future__ import annotations

STATEMENTS = [
    "ALTER DATABASE d SET OPTIONS (version_retention_period = '2d')",
    "CREATE SCHEMA n",
    (
        "CREATE TABLE T (A INT64 NOT NULL, B STRING(36), C TIMESTAMP OPTIONS "
        "(allow_commit_timestamp = true)) PRIMARY KEY (A, B DESC)"
    ),
    "CREATE VIEW Later SQL SECURITY INVOKER AS SELECT 1 AS a",
    "CREATE TABLE n.U (A INT64, CONSTRAINT c CHECK (A > 1)) PRIMARY KEY (A)",
    "CREATE INDEX n.I ON n.U (A)",
    "ALTER TABLE T ADD CONSTRAINT f FOREIGN KEY (A) REFERENCES n.U (A)",
    "CREATE VIEW V SQL SECURITY INVOKER AS SELECT T.A FROM T",
    "CREATE OR REPLACE VIEW Later SQL SECURITY INVOKER AS SELECT V.A FROM V",
    "CREATE CHANGE STREAM S FOR T(C) OPTIONS (retention_period = '36h', exclude_insert = true)",
    "CREATE CHANGE STREAM Everything FOR ALL",
    "CREATE CHANGE STREAM Nothing",
    "CREATE ROLE reader",
    "CREATE ROLE boss",
    "GRANT SELECT ON CHANGE STREAM S TO ROLE reader",
    "GRANT ROLE reader TO ROLE boss",
]


def test_the_text_makes_the_same_schema_again(make) -> None:
    text = make(*STATEMENTS).ddl()

    assert make(*text).ddl() == text
    assert len(text) == len(STATEMENTS) - 1


def test_each_thing_stands_after_what_it_is_made_of(make) -> None:
    text = make(*STATEMENTS).ddl()
    order = [
        next(index for index, line in enumerate(text) if line.startswith(start))
        for start in (
            "ALTER DATABASE",
            "CREATE SCHEMA n",
            "CREATE TABLE n.U",
            "CREATE INDEX n.I",
            "ALTER TABLE T ADD CONSTRAINT f FOREIGN KEY",
            "CREATE VIEW V",
            "CREATE VIEW Later",
            "CREATE CHANGE STREAM S",
            "CREATE ROLE",
            "GRANT",
        )
    ]

    assert order == sorted(order)


def test_postgresql_has_its_own_text(make) -> None:
    made = make("CREATE TABLE t (a bigint PRIMARY KEY)", dialect="POSTGRESQL")

    assert made.ddl() == ["CREATE TABLE t (\n  a bigint NOT NULL,\n  PRIMARY KEY(a)\n)"]


def test_views_whose_words_make_a_circle_are_printed(make) -> None:
    first = "CREATE VIEW A SQL SECURITY INVOKER AS WITH B AS (SELECT 1 AS x) SELECT B.x FROM B"
    second = "CREATE VIEW B SQL SECURITY INVOKER AS SELECT A.x FROM A"

    assert set(make(first, second).ddl()) == {first, second}


def test_the_dot_in_a_columns_name_is_part_of_it(make) -> None:
    made = make(
        "CREATE TABLE T (k INT64, `a.b` TIMESTAMP) PRIMARY KEY (k), "
        "ROW DELETION POLICY (OLDER_THAN(`a.b`, INTERVAL 1 DAY))",
        "CREATE INDEX I ON T(`a.b`)",
        "CREATE CHANGE STREAM S FOR T(`a.b`)",
    )
    postgres = make(
        'CREATE TABLE t (k bigint PRIMARY KEY, "a.b" timestamptz) TTL INTERVAL \'1 days\' ON "a.b"',
        'CREATE INDEX i ON t ("a.b")',
        'CREATE CHANGE STREAM s FOR t("a.b")',
        dialect="POSTGRESQL",
    )

    assert make(*made.ddl()).ddl() == made.ddl()
    assert make(*postgres.ddl(), dialect="POSTGRESQL").ddl() == postgres.ddl()
