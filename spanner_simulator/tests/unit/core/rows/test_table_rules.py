from __future__ import annotations

from spanner_simulator.core.rows.table_rules import build_rules
from spanner_simulator.core.schema.statements import Interleave
from unit.core.rows.conftest import column


def test_parents_and_children_find_each_other(shop) -> None:
    shop.table("P", ["A INT64"], "A")
    shop.table("C", ["A INT64", "B INT64"], "A B", interleave=Interleave("p", on_delete="CASCADE"))
    rules = build_rules(shop.catalogue)

    assert [(one.table.name, one.cascades) for one in rules["p"].children] == [("C", True)]
    assert rules["c"].parent is shop.catalogue.table("P")


def test_generated_columns_are_in_an_order_in_which_they_can_be_computed(shop) -> None:
    shop.table(
        "T",
        [
            column("G INT64", generated="H + 1"),
            column("H INT64", generated="k + 1"),
            "K INT64",
            column("Z INT64", generated="G + 1"),
        ],
        "K",
    )

    assert [one.name for one in build_rules(shop.catalogue)["t"].generated] == ["H", "G", "Z"]
