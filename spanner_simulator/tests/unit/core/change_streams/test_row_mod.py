from __future__ import annotations

from spanner_simulator.core.change_streams.row_mod import Mod, RowMod


def test_it_has_the_plain_values_of_the_columns_that_are_captured(bank) -> None:
    table = bank.database.catalogue.table("Accounts")
    before = {"Id": 1, "Balance": 2, "Name": None}
    mod = RowMod(table, before, {**before, "Balance": 3}, ("Balance", "Name"), ("Balance",))

    assert mod.keys == {"Id": "1"}
    assert mod.new_values == {"Balance": "3", "Name": None}
    assert mod.old_values == {"Balance": "2"}


def test_a_deleted_row_has_its_keys_from_before(bank) -> None:
    table = bank.database.catalogue.table("Accounts")
    mod = RowMod(table, {"Id": 7, "Balance": 2, "Name": "n"}, None, (), ("Balance",))

    assert mod == Mod({"Id": "7"}, {}, {"Balance": "2"})
    assert mod != Mod({"Id": "8"}, {}, {"Balance": "2"})
    assert mod != "Mod"
