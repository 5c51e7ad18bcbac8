from __future__ import annotations

from spanner_simulator.core.schema.foreign_key_indexes import (
    managed_indexes,
    unique_constraint,
)

BEFORE = (
    "CREATE TABLE P (k INT64 NOT NULL, a INT64) PRIMARY KEY (k)",
    (
        "CREATE TABLE C (k INT64 NOT NULL, b INT64, CONSTRAINT f1 FOREIGN KEY (b) "
        "REFERENCES P (k), "
        "CONSTRAINT f2 FOREIGN KEY (b) REFERENCES P (a), "
        "CONSTRAINT f3 FOREIGN KEY (k) REFERENCES P (a) NOT ENFORCED) PRIMARY KEY (k)"
    ),
)


def test_one_index_serves_several_foreign_keys(make) -> None:
    found = managed_indexes(make(*BEFORE).catalogue)

    assert [(one.index.name[:-16], one.index.is_unique, one.parent) for one in found] == [
        ("IDX_C_b_N_", False, ""),
        ("IDX_P_a_U_", True, ""),
    ]
    assert [one.index.is_null_filtered for one in found] == [True, True]


def test_a_foreign_key_refers_to_a_primary_key_or_a_unique_index(make) -> None:
    catalogue = make(*BEFORE).catalogue
    first, second, _ = catalogue.table("C").foreign_keys

    assert unique_constraint(catalogue, first) == "PK_P"
    assert unique_constraint(catalogue, second).startswith("IDX_P_a_U_")
