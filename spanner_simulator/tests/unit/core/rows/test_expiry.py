from __future__ import annotations

from spanner_simulator.core.rows.expiry import due_rows
from spanner_simulator.core.schema.statements import RowDeletionPolicy
from unit.core.rows.conftest import write

DAY_US = 86_400_000_000


def test_rows_are_due_when_their_timestamp_is_old_enough(shop) -> None:
    policy = RowDeletionPolicy("at", 2)
    table = shop.table("T", ["K INT64", "At TIMESTAMP"], "K", row_deletion=policy)
    shop.table("U", ["K INT64", "At TIMESTAMP"], "K")
    shop.follow()
    rows = [["1", "1970-01-01T00:00:00Z"], ["2", None], ["3", "1970-01-01T00:00:01Z"]]
    shop.commit(write("insert", "T", "K At", *rows), write("insert", "U", "K At", *rows))

    def due(now_us: int) -> list[tuple[str, list[bytes]]]:
        return list(due_rows(shop.store.rules, shop.store.tables, now_us=now_us))

    assert due(2 * DAY_US - 1) == []
    assert due(2 * DAY_US) == [("t", [table.encoded_key({"K": 1})])]
    assert due(3 * DAY_US) == [("t", [table.encoded_key({"K": key}) for key in (1, 3)])]
