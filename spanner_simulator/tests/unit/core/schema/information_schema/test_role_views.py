from __future__ import annotations


def test_roles_and_members(shown) -> None:
    assert shown("roles", "role_name spanner_is_system") == [
        ("public", True),
        ("spanner_info_reader", True),
        ("spanner_sys_reader", True),
        ("reader", False),
        ("boss", False),
    ]
    assert shown("role_grantees", "grantee role_name") == [("boss", "reader")]


def test_privileges(shown) -> None:
    assert shown("table_privileges", "grantee table_name privilege_type") == [
        ("reader", "N", "DELETE"),
        ("reader", "N", "SELECT"),
        ("reader", "V", "SELECT"),
    ]
    assert shown("column_privileges", "table_name column_name privilege_type") == [
        ("N", "k", "SELECT"),
        ("N", "c", "SELECT"),
    ]
    assert shown("change_stream_privileges", "grantee change_stream_name privilege_type") == [
        ("reader", "S", "SELECT"),
    ]
    assert shown("routine_privileges", "grantee routine_name privilege_type") == [
        ("reader", "READ_S", "EXECUTE"),
    ]


def test_options_of_the_database(shown) -> None:
    assert shown("database_options", "option_name option_type option_value") == [
        ("database_dialect", "STRING", "GOOGLE_STANDARD_SQL"),
        ("version_retention_period", "STRING", "2d"),
    ]
    assert shown("database_options", "schema_name option_type option_value", "POSTGRESQL") == [
        ("public", "character varying", "POSTGRESQL"),
    ]
