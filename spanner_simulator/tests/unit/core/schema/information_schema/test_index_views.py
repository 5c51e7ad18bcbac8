from __future__ import annotations

PRIMARY = ("PRIMARY_KEY", "PRIMARY_KEY", "", True, False, None)


def test_indexes_and_primary_keys(shown) -> None:
    names = "table_name index_name index_type parent_table_name is_unique is_null_filtered "
    found = shown("indexes", names + "index_state", spanner_is_managed=False)

    assert found == [
        *((table, *PRIMARY) for table in ("T", "C", "N", "F", "R")),
        ("T", "I", "INDEX", "", False, True, "READ_WRITE"),
        ("C", "CI", "INDEX", "T", True, False, "READ_WRITE"),
    ]


def test_indexes_behind_foreign_keys_are_marked(shown) -> None:
    found = shown(
        "indexes",
        "table_name index_name is_unique parent_table_name",
        spanner_is_managed=True,
    )

    assert [(table, name[:-16], unique, parent) for table, name, unique, parent in found] == [
        ("F", "IDX_F_a_N_", False, ""),
        ("F", "IDX_F_a_b_N_", False, ""),
        ("T", "IDX_T_k_a_U_", True, "T"),
    ]


def test_index_columns(shown) -> None:
    names = "index_name column_name ordinal_position column_ordering is_nullable spanner_type"
    found = shown("index_columns", names)

    assert ("PRIMARY_KEY", "k", 1, "DESC", "NO", "INT64") in found
    assert [row for row in found if row[0] == "I"] == [
        ("I", "a", 1, "ASC", "NO", "INT64"),
        ("I", "s", 2, "DESC", "NO", "STRING(MAX)"),
        ("I", "ts", None, None, "YES", "TIMESTAMP"),
    ]


def test_indexes_of_postgresql(shown) -> None:
    names = "index_name is_unique spanner_is_managed filter"
    assert ("i", "NO", "NO", "s IS NOT NULL") in shown("indexes", names, "POSTGRESQL")

    names = "column_name column_ordering is_nullable"
    assert shown("index_columns", names, "POSTGRESQL", index_name="i") == [
        ("s", "DESC", "NO"),
        ("ts", "ASC NULLS FIRST", "YES"),
        ("ct", None, "YES"),
    ]
