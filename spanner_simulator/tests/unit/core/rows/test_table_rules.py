from __future__ import annotations

from spanner_simulator.core.rows.table_rules import build_rules
from spanner_simulator.core.schema.definitions import ForeignKey, Interleave
from unit.core.rows.conftest import column


def test_parents_and_children_find_each_other(shop) -> None:
    shop.table("P", ["A INT64"], "A")
    shop.table("C", ["A INT64", "B INT64"], "A B", interleave=Interleave("p", on_delete="CASCADE"))
    shop.table("D", ["A INT64", "B INT64"], "A B", interleave=Interleave("P", in_parent=False))
    rules = build_rules(shop.catalogue)

    assert [(one.table.name, one.cascades) for one in rules["p"].children] == [("C", True)]
    assert rules["c"].parent is shop.catalogue.table("P")
    assert rules["d"].parent is None


def test_references_are_known_on_both_sides_if_enforced(shop) -> None:
    shop.table("R", ["A INT64", "B INT64", "C INT64"], "A B")
    keys = (
        ForeignKey("by_key", ("Y", "X"), "R", ("b", "a")),
        ForeignKey("by_column", ("X",), "R", ("C",)),
        ForeignKey("loose", ("X",), "R", ("C",), is_enforced=False),
    )
    shop.table("F", ["K INT64", "X INT64", "Y INT64"], "K", foreign_keys=keys)
    rules = build_rules(shop.catalogue)
    by_key, by_column = rules["f"].references

    assert rules["r"].referenced_by == (by_key, by_column)
    assert (by_key.to, by_key.key_order) == (None, (1, 0))
    assert by_key.values({"X": 1, "Y": 2}) == [2, 1]
    assert by_key.values({"X": None, "Y": 2}) is None
    assert by_column.to in rules["r"].indexes
    assert by_column.offered({"C": 3}) == [3]
    assert by_column.by in rules["f"].indexes


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
