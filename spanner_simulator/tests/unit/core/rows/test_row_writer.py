from __future__ import annotations

import pytest

from spanner_simulator.core.rows.key_sets import KeySet, key_range
from spanner_simulator.core.rows.mutations import Delete, Mutation
from spanner_simulator.core.rows.row_writer import RowWriter
from spanner_simulator.core.schema.statements import Interleave
from spanner_simulator.errors import Code, SpannerError
from unit.core.rows.conftest import column, delete, write

CASCADE = Interleave("P", on_delete="CASCADE")
FILL = (
    write("insert", "P", "A V", ["1", "0"], ["2", "0"]),
    write("insert", "C", "A B", ["1", "1"], ["1", "2"], ["2", "1"]),
    write("insert", "G", "A B D", ["1", "1", "1"], ["1", "2", "1"]),
    write("insert", "D", "A B", ["1", "1"]),
)


@pytest.fixture
def family(shop):
    """A parent, two tables of children that go with it, grandchildren; and one that holds."""
    shop.table("P", ["A INT64", "V INT64"], "A")
    shop.table("C", ["A INT64", "B INT64", "V INT64"], "A B", interleave=CASCADE)
    grand = Interleave("C", on_delete="CASCADE")
    shop.table("G", ["A INT64", "B INT64", "D INT64"], "A B D", interleave=grand)
    shop.table("D", ["A INT64", "B INT64"], "A B", interleave=CASCADE)
    shop.table("N", ["A INT64", "B INT64"], "A B", interleave=Interleave("P"))
    shop.follow()
    shop.commit(*FILL)
    return shop


def refusal(shop, *mutations: Mutation) -> SpannerError:
    """What a statement is refused with; it must leave no trace."""
    before = {name: shop.rows(name) for name in shop.store.tables}
    with pytest.raises(SpannerError) as caught:
        shop.apply(*mutations)
    assert {name: shop.rows(name) for name in shop.store.tables} == before
    return caught.value


class TestInterleaving:
    def test_a_child_needs_its_parent(self, family) -> None:
        error = refusal(family, write("insert", "C", "A B", ["9", "1"]))
        assert error.code is Code.NOT_FOUND
        assert error.message == (
            "Parent row for row [9,1] in table C is missing. Row cannot be written."
        )

    def test_children_go_with_their_parent_each_as_a_change_of_its_own(self, family) -> None:
        family.apply(delete("P", ["1"]), write("replace", "P", "A", ["2"]))
        assert family.changes() == [
            *(("P", "DELETE", [1]), ("C", "DELETE", [1, 1]), ("G", "DELETE", [1, 1, 1])),
            *(("C", "DELETE", [1, 2]), ("G", "DELETE", [1, 2, 1]), ("D", "DELETE", [1, 1])),
            *(("P", "DELETE", [2]), ("C", "DELETE", [2, 1]), ("P", "INSERT", [2])),
        ]

    @pytest.mark.parametrize("mutation", [delete("P", ["1"]), write("replace", "P", "A", ["1"])])
    def test_a_child_that_holds_its_parent_keeps_it(self, family, mutation: Mutation) -> None:
        family.commit(write("insert", "N", "A B", ["1", "1"]))
        error = refusal(family, mutation)
        assert error.code is Code.FAILED_PRECONDITION
        assert error.message == (
            "Integrity constraint violation during DELETE/REPLACE. Found child row [1,1] in table "
            "N."
        )
        family.apply(delete("N", ["1", "1"]), mutation)

    def test_what_other_rows_hold_is_not_deleted_when_only_tried(self, family) -> None:
        family.commit(write("insert", "N", "A B", ["1", "1"]))
        table = family.catalogue.table("P")
        writer = RowWriter(family.writes, family.evaluation)
        keys = [table.encoded_key({"A": number}) for number in (1, 2, 3)]
        assert [writer.try_to_delete("p", key) for key in keys] == [False, True, False]
        assert family.rows("P") == [[1, 0]]


class TestUniqueIndexes:
    @pytest.fixture
    def unique(self, shop):
        shop.table("R", ["K INT64", "V STRING"], "K")
        shop.index("RV", "R", "V", is_unique=True)
        shop.table("M", ["K INT64", "V STRING"], "K")
        shop.index("MV", "M", "V", is_unique=True, is_null_filtered=True)
        shop.follow()
        shop.commit(write("insert", "R", "K V", ["1", "a"], ["2", "b"]))
        return shop

    def test_a_value_is_admitted_once(self, unique) -> None:
        error = refusal(unique, write("insert", "R", "K V", ["3", "a"]))
        assert error.code is Code.ALREADY_EXISTS
        assert error.message == (
            "Unique index violation on index RV at index key [a]. It conflicts with row [1] in "
            "table R."
        )
        assert refusal(unique, write("insert", "R", "K V", ["4", "c"], ["5", "c"])).code is (
            Code.ALREADY_EXISTS
        )

    def test_null_is_a_value_unless_it_is_filtered(self, unique) -> None:
        nulls = [["8", None], ["9", None]]
        error = refusal(unique, write("insert", "R", "K V", *nulls))
        assert error.code is Code.ALREADY_EXISTS
        unique.apply(write("insert", "M", "K V", *nulls))

    def test_in_postgresql_null_equals_nothing(self, make_shop) -> None:
        shop = make_shop("POSTGRESQL")
        shop.table("R", ["K INT64", "V INT64", "W INT64"], "K")
        shop.index("RV", "R", "V W", is_unique=True)
        shop.follow()
        shop.commit(write("insert", "R", "K V W", ["1", None, "6"], ["2", None, "6"]))
        shop.index("RW", "R", "V", is_unique=True)
        shop.follow()
        assert shop.rows("RV") == shop.rows("RW") == []
        assert refusal(shop, write("insert", "R", "K V", ["3", "5"], ["4", "5"])).code is (
            Code.ALREADY_EXISTS
        )

    def test_values_may_change_places_within_a_statement(self, unique) -> None:
        unique.apply(write("update", "R", "K V", ["1", "b"], ["2", "a"]))
        unique.apply(delete("R", ["1"]), write("insert", "R", "K V", ["3", "b"]))
        assert unique.rows("RV") == [["a", 2], ["b", 3]]


def test_a_statement_says_how_many_rows_it_meant(family) -> None:
    assert family.apply(write("insert", "P", "A", ["7"], ["8"])) == 2
    assert family.apply(delete("P", ["7"], ["99"], ["7"])) == 1


def test_a_statement_remembers_what_it_looked_at(family) -> None:
    """A row that it wrote, the parent of a child, and where children might have been."""
    family.apply(write("insert", "C", "A B", ["2", "5"]), delete("P", ["1"]))
    keys = family.transaction.key_reads
    ranges = {name for name, _ in family.transaction.range_reads}
    child, parent = family.catalogue.table("C"), family.catalogue.table("P")
    assert {("c", child.encoded_key({"A": 2, "B": 5})), ("p", parent.encoded_key({"A": 2}))} <= (
        keys.keys()
    )
    assert {"c", "d", "n"} <= ranges

    family.apply(Delete("G", KeySet(everything=True)))
    assert ("g", key_range(family.catalogue.table("G"), None)) in family.transaction.range_reads


def test_an_unknown_table_is_not_found(family) -> None:
    assert refusal(family, delete("Nope", ["1"])).message == "Table not found: Nope"


def test_a_generated_key_stays_as_it_is(shop) -> None:
    shop.table("K", ["A INT64", column("K INT64", generated="A + 1"), "V INT64"], "K")
    shop.follow()
    shop.commit(write("insert", "K", "A V", ["1", "5"]))
    error = refusal(shop, write("update", "K", "K A", ["2", "7"]))
    assert error.code is Code.OUT_OF_RANGE
    assert error.message == (
        "The value of generated primary key column `K.K` cannot be modified when its non-key "
        "dependent columns are updated."
    )
    shop.commit(write("update", "K", "K A V", ["2", "1", "6"]))
    assert shop.rows("K") == [[1, 2, 6]]
