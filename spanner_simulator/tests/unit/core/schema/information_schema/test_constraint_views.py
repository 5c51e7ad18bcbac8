from __future__ import annotations

import re


def plain(name: str) -> str:
    """A made-up name without its digest."""
    return re.sub("_[0-9A-F]{16}", "", name)


def test_every_constraint_has_its_table(shown) -> None:
    found = shown("table_constraints", "constraint_name table_name constraint_type enforced")

    assert sorted((plain(str(name)), *rest) for name, *rest in found) == [
        ("CK_IS_NOT_NULL_C_k", "C", "CHECK", "YES"),
        ("CK_IS_NOT_NULL_N_k", "N", "CHECK", "YES"),
        ("CK_IS_NOT_NULL_T_a", "T", "CHECK", "YES"),
        ("CK_IS_NOT_NULL_T_k", "T", "CHECK", "YES"),
        ("IDX_T_k_a_U", "T", "UNIQUE", "YES"),
        ("PK_C", "C", "PRIMARY KEY", "YES"),
        ("PK_F", "F", "PRIMARY KEY", "YES"),
        ("PK_N", "N", "PRIMARY KEY", "YES"),
        ("PK_R", "R", "PRIMARY KEY", "YES"),
        ("PK_T", "T", "PRIMARY KEY", "YES"),
        ("ck", "T", "CHECK", "YES"),
        ("f1", "F", "FOREIGN KEY", "YES"),
        ("f2", "F", "FOREIGN KEY", "YES"),
        ("f3", "F", "FOREIGN KEY", "NO"),
    ]


def test_constraints_are_in_their_tables_schema(shown) -> None:
    assert shown("table_constraints", "constraint_schema", constraint_name="PK_R") == [("ns",)]


def test_keys_have_positions(shown) -> None:
    names = "table_name column_name ordinal_position position_in_unique_constraint"

    assert shown("key_column_usage", names, constraint_name="PK_C") == [
        ("C", "k", 1, None),
        ("C", "c", 2, None),
    ]
    assert shown("key_column_usage", names, constraint_name="f2") == [
        ("F", "a", 1, 1),
        ("F", "b", 2, 2),
    ]


def test_what_foreign_keys_refer_to(shown) -> None:
    names = "constraint_name unique_constraint_name match_option delete_rule"

    assert [
        (name, other and plain(other), match, rule)
        for name, other, match, rule in shown("referential_constraints", names)
    ] == [
        ("f1", "PK_T", "SIMPLE", "CASCADE"),
        ("f2", "IDX_T_k_a_U", "SIMPLE", "NO ACTION"),
        ("f3", None, "SIMPLE", "NO ACTION"),
    ]
    assert shown("referential_constraints", "match_option", "POSTGRESQL") == [("NONE",)]


def test_what_constraints_look_at(shown) -> None:
    columns = "table_name column_name"

    assert shown("constraint_column_usage", columns, constraint_name="ck") == [
        ("T", "k"),
        ("T", "a"),
    ]
    assert shown("constraint_column_usage", columns, constraint_name="f3") == [("F", "a")]
    assert shown("constraint_table_usage", "table_name", constraint_name="f2") == [("T",)]
    assert shown("constraint_table_usage", "table_name", "POSTGRESQL", constraint_name="ck") == []


def test_checks(shown) -> None:
    assert shown("check_constraints", "constraint_name check_clause", "POSTGRESQL") == [
        ("CK_IS_NOT_NULL_t_k", "k IS NOT NULL"),
        ("ck", "k > 1"),
        ("CK_IS_NOT_NULL_u_k", "k IS NOT NULL"),
    ]
