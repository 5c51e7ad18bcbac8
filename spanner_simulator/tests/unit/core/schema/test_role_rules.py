from __future__ import annotations

import pytest

BEFORE = (
    "CREATE TABLE T (a INT64) PRIMARY KEY (a)",
    "CREATE CHANGE STREAM S FOR T",
    "CREATE SCHEMA n",
    "CREATE ROLE a",
    "CREATE ROLE b",
)


def test_privileges_come_directly_or_through_roles_and_can_be_revoked(make) -> None:
    made = make(
        *BEFORE,
        "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE a",
        "GRANT ROLE a TO ROLE b",
    )
    has = made.catalogue.has_privilege

    assert has("B", "TABLE FUNCTION", "read_s", "EXECUTE")
    assert not has("b", "CHANGE STREAM", "S", "SELECT")
    made.apply("REVOKE ROLE a FROM ROLE b")
    assert not has("b", "TABLE FUNCTION", "READ_S", "EXECUTE")


def test_what_public_may_everybody_may(make) -> None:
    made = make(*BEFORE, "GRANT SELECT, UPDATE ON TABLE T TO ROLE public")

    assert made.catalogue.has_privilege("a", "TABLE", "t", "SELECT")
    made.apply("REVOKE SELECT ON TABLE T FROM ROLE public")
    assert not made.catalogue.has_privilege("a", "TABLE", "t", "SELECT")
    assert made.catalogue.has_privilege("a", "TABLE", "t", "UPDATE")


def test_a_dropped_role_is_no_member_any_more(make) -> None:
    made = make(*BEFORE, "GRANT ROLE a TO ROLE b", "DROP ROLE A", "DROP ROLE IF EXISTS a")

    assert made.catalogue.role("b").members_of == frozenset()
    made.apply("CREATE ROLE IF NOT EXISTS b")


def test_postgresql_names_functions_otherwise(make) -> None:
    made = make(
        "CREATE CHANGE STREAM s",
        "CREATE CHANGE STREAM m WITH (partition_mode = 'MUTABLE_KEY_RANGE')",
        "CREATE ROLE r",
        "GRANT EXECUTE ON FUNCTION spanner.read_json_s TO r",
        "GRANT EXECUTE ON FUNCTION spanner.read_proto_bytes_m TO r",
        dialect="POSTGRESQL",
    )

    assert made.catalogue.has_privilege("r", "TABLE FUNCTION", "read_json_s", "EXECUTE")
    assert made.catalogue.has_privilege("r", "TABLE FUNCTION", "read_proto_bytes_m", "EXECUTE")


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("GRANT ROLE r TO ROLE a", "NOT_FOUND Role not found: r."),
        ("GRANT SELECT ON TABLE nope TO ROLE a", "NOT_FOUND Table not found: nope"),
        ("GRANT SELECT ON VIEW T TO ROLE a", "NOT_FOUND View not found: T"),
        ("GRANT USAGE ON SCHEMA z TO ROLE a", "NOT_FOUND Schema not found: z"),
        (
            "GRANT EXECUTE ON TABLE FUNCTION READ_X TO ROLE a",
            "NOT_FOUND Table function not found: READ_X",
        ),
        (
            "GRANT EXECUTE ON TABLE T TO ROLE a",
            "INVALID_ARGUMENT Privilege EXECUTE cannot be granted on TABLE.",
        ),
        ("CREATE ROLE A", "FAILED_PRECONDITION Duplicate name in schema: A."),
        (
            "DROP ROLE public",
            "FAILED_PRECONDITION Cannot alter or drop the system role public.",
        ),
        (
            "GRANT ROLE a TO ROLE a",
            (
                "FAILED_PRECONDITION Role a cannot be a member of itself, directly or through "
                "other "
                "roles."
            ),
        ),
    ],
)
def test_refusals(make, statement: str, refusal: str) -> None:
    assert make(*BEFORE).refusal(statement) == refusal


def test_what_is_dropped_takes_its_privileges_with_it(make) -> None:
    made = make(
        *BEFORE,
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT 1 AS x",
        "CREATE TABLE U (a INT64) PRIMARY KEY (a)",
        "GRANT SELECT ON TABLE T, U TO ROLE a",
        "GRANT SELECT ON TABLE V TO ROLE a",
        "GRANT USAGE ON SCHEMA n TO ROLE a",
        "GRANT SELECT ON CHANGE STREAM S TO ROLE a",
        "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE a",
    )
    made.apply("DROP CHANGE STREAM S", "DROP TABLE T", "DROP VIEW V", "DROP SCHEMA n")

    assert [one for one in made.ddl() if one.startswith("GRANT")] == [
        "GRANT SELECT ON TABLE u TO ROLE a"
    ]
    made.apply(*BEFORE[:3])
    for kind, name, privilege in (
        ("TABLE", "T", "SELECT"),
        ("CHANGE STREAM", "S", "SELECT"),
        ("TABLE FUNCTION", "READ_S", "EXECUTE"),
    ):
        assert not made.catalogue.has_privilege("a", kind, name, privilege)


@pytest.mark.parametrize("name", ["spanner_mine", "SPANNER_x"])
def test_names_of_system_roles_are_not_for_others(make, name: str) -> None:
    assert make().refusal(f"CREATE ROLE {name}") == f"INVALID_ARGUMENT Role name not valid: {name}."
