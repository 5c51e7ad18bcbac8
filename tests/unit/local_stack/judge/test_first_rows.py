"""The rows that a stream began with, as transactions: what the changelog has to be like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidegate.local_stack.judge.delta import ChangelogTable
from tidegate.local_stack.judge.first_rows import FirstRows, first_transactions, is_of_backfill
from tidegate.local_stack.judge.log import Place

AT_US = 70
READ = ("tidegate-backfill/read/0/12/abc", "tidegate-backfill/read/11/12/abc")
FIRST = FirstRows(AT_US, ("t", "empty"), frozenset({*READ, "tidegate-backfill/done/1/12"}))


class Source:
    def tables(self) -> tuple[str, ...]:
        return ("t", "empty")

    def primary_key(self, table: str) -> tuple[str, ...]:
        return ("K",)

    def read(self, table: str, *, at_us: int | None) -> Any:
        assert at_us == AT_US
        return {"A": ("a", None), "K": (1, 2)} if table == "t" else {"A": (), "K": ()}


def row(key: int, sequence: int, *, transaction: str = "spanner-backfill-11", **more: Any) -> Any:
    place = Place(AT_US, transaction, (0, sequence), 0)
    return SimpleNamespace(**{"place": place, "tag": "spanner-backfill", "keys": {"K": key}} | more)


def transactions(*rows: Any) -> Any:
    return first_transactions(FIRST, Source(), [ChangelogTable("t", rows, {})])


def test_each_row_of_the_source_stands_where_the_changelog_has_it_first():
    (one,) = transactions(row(2, 1), row(1, 3), row(2, 4))

    assert (one.server_transaction_id, one.tag) == ("spanner-backfill-11", "spanner-backfill")
    assert one.stream_partition_tokens == {READ[1]}
    assert [(change.keys["K"], change.place.record_sequence[1]) for change in one.changes] == [
        (1, 3), (2, 1),
    ]  # fmt: skip
    assert [change.new_values for change in one.changes] == [{"A": "a"}, {"A": None}]
    assert {change.mod_type for change in one.changes} == {"INSERT"}


def test_a_row_that_the_changelog_lacks_has_a_place_that_none_has():
    found = transactions(
        row(2, 1), row(1, 1, tag="another"), row(1, 1, place=Place(71, "x", (0, 0), 0))
    )

    assert [one.server_transaction_id for one in found] == ["", "spanner-backfill-11"]
    assert found[0].changes[0].place.record_sequence == (-1, -1)


def test_tokens_of_a_backfill_are_known_by_their_begin():
    assert [is_of_backfill(token) for token in (READ[0], "abc")] == [True, False]
