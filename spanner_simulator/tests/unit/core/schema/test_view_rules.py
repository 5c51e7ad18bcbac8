from __future__ import annotations

TABLE = "CREATE TABLE T (a INT64, b INT64) PRIMARY KEY (a)"
VIEW = "CREATE VIEW V SQL SECURITY INVOKER AS SELECT T.a FROM T"


def test_a_view_that_another_is_made_of_stays(make) -> None:
    made = make(TABLE, VIEW, "CREATE VIEW W SQL SECURITY INVOKER AS SELECT V.a FROM V")

    assert made.refusal("DROP VIEW V") == (
        "FAILED_PRECONDITION Cannot drop VIEW `V` on which there are dependent views: W."
    )
    made.apply("DROP VIEW w", "DROP VIEW v", "DROP VIEW IF EXISTS v")
    assert made.catalogue.views == {}
    assert made.refusal("DROP VIEW v") == "NOT_FOUND View not found: v"


def test_a_view_is_replaced_unless_it_would_contain_itself(make) -> None:
    made = make(TABLE, VIEW, "CREATE VIEW W SQL SECURITY INVOKER AS SELECT V.a FROM V")

    for query in ("SELECT V.a FROM V", "SELECT W.a FROM W"):
        assert made.refusal(f"CREATE OR REPLACE VIEW V SQL SECURITY INVOKER AS {query}") == (
            "FAILED_PRECONDITION Cannot replace VIEW `V` because new definition is recursive."
        )
    made.apply("CREATE OR REPLACE VIEW V SQL SECURITY DEFINER AS SELECT 1 AS a")
    assert made.catalogue.view("v").security == "DEFINER"
    assert made.catalogue.view("v").query == "SELECT 1 AS a"


def test_a_view_takes_no_name_of_a_table(make) -> None:
    assert make(TABLE).refusal(
        "CREATE OR REPLACE VIEW t SQL SECURITY INVOKER AS SELECT 1 AS a",
    ) == ("FAILED_PRECONDITION Duplicate name in schema: t.")


def test_a_schema_goes_when_it_is_empty(make) -> None:
    made = make(
        "CREATE SCHEMA n",
        "CREATE SCHEMA IF NOT EXISTS N",
        "CREATE TABLE n.T (a INT64) PRIMARY KEY (a)",
        "CREATE INDEX n.I ON n.T (a)",
        "CREATE VIEW n.V SQL SECURITY INVOKER AS SELECT 1 AS a",
    )

    assert made.refusal("DROP SCHEMA n") == (
        "FAILED_PRECONDITION Cannot drop schema n while it has dependencies.\n"
        "Dependent tables:n.T\nDependent views:n.V\nDependent indexes:n.I"
    )
    made.apply("DROP INDEX n.I", "DROP VIEW n.V", "DROP TABLE n.T", "DROP SCHEMA N")
    assert made.catalogue.schemas == {}
    assert made.refusal("DROP SCHEMA n") == "NOT_FOUND Schema not found: n"
    assert made.refusal("CREATE TABLE n.T (a INT64) PRIMARY KEY (a)") == (
        "NOT_FOUND Schema not found: n"
    )


def test_a_view_in_a_schema_keeps_its_table(make) -> None:
    made = make(
        "CREATE SCHEMA n",
        "CREATE TABLE n.T (a INT64) PRIMARY KEY (a)",
        "CREATE VIEW n.V SQL SECURITY INVOKER AS SELECT t.a FROM n.T AS t",
    )

    assert made.refusal("DROP TABLE n.T") == (
        "FAILED_PRECONDITION Cannot drop TABLE `n.T` on which there are dependent views: n.V."
    )


def test_the_name_of_a_column_holds_no_table_or_view_back(make) -> None:
    made = make(
        "CREATE SCHEMA n",
        "CREATE TABLE U (a INT64, b INT64) PRIMARY KEY (a)",
        "CREATE TABLE n.W (a INT64) PRIMARY KEY (a)",
        "CREATE TABLE W (a INT64) PRIMARY KEY (a)",
        "CREATE VIEW a SQL SECURITY INVOKER AS SELECT U.b AS W FROM U",
        "CREATE VIEW b SQL SECURITY INVOKER AS SELECT U.a AS W FROM U, n.W",
    )

    made.apply(
        "DROP TABLE W",
        "CREATE OR REPLACE VIEW a SQL SECURITY INVOKER AS SELECT U.a AS b FROM U",
        "DROP VIEW a",
    )
    assert set(made.catalogue.views) == {"b"}
    assert "dependent views: b" in made.refusal("DROP TABLE n.W")
