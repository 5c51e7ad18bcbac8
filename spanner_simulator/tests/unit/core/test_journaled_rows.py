from __future__ import annotations

import pytest

from spanner_simulator.core.journal import JournaledChange
from spanner_simulator.core.journaled_rows import journaled_change, replay_change
from spanner_simulator.errors import SpannerError
from unit.core.rows.conftest import Shop, write


@pytest.fixture
def filled() -> Shop:
    shop = Shop()
    shop.table("T", ["K INT64", "A INT64"], "K")
    shop.index("TA", "T", "A")
    shop.follow()
    shop.commit(write("insert", "T", "K A", ["1", "10"], ["2", "20"]))
    return shop


def test_changes_are_kept_in_plain_form_and_come_back_the_same(filled) -> None:
    filled.apply(
        write("update", "T", "K A", ["1", "11"]),
        write("replace", "T", "K A", ["2", None]),
        write("insert", "T", "K A", ["3", "30"]),
    )
    changes = filled.writes.changes()
    kept = [journaled_change(one) for one in changes]
    other = filled.store.new_writes()
    for one in kept:
        replay_change(other, one)
    assert kept == [
        JournaledChange("T", "UPDATE", ("1", "11"), ("A",)),
        JournaledChange("T", "DELETE", ("2",)),
        JournaledChange("T", "INSERT", ("2", None)),
        JournaledChange("T", "INSERT", ("3", "30")),
    ]
    assert other.changes() == changes
    assert sorted(other.final_rows()) == sorted(filled.writes.final_rows())


@pytest.mark.parametrize(
    "change",
    [
        JournaledChange("Nope", "INSERT", ("1",)),
        JournaledChange("T", "INSERT", ("1",)),
        JournaledChange("T", "INSERT", ("1", "1")),
        JournaledChange("T", "UPDATE", ("9", "1"), ("A",)),
        JournaledChange("T", "DELETE", ("9",)),
    ],
)
def test_what_does_not_fit_is_refused(filled, change: JournaledChange) -> None:
    with pytest.raises(SpannerError, match="does not fit"):
        replay_change(filled.writes, change)
