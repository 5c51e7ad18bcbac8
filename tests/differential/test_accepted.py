"""What is accepted, and what is close to it and is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.accepted import ACCEPTED, accepted_by, written_columns
from tests.differential.difference import Difference
from tests.differential.steps import Commit, Dml, PartitionedDml, ReadWrite, Write

TAGGED = Commit((), tag="nightly")
TIMESTAMP, FLOAT64 = {"code": "TIMESTAMP"}, {"code": "FLOAT64"}
# Step 4 committed at these moments, on the simulator and on the emulator.
COMMITS = ({"2026-01-01T00:00:00.5Z": 4}, {"2026-01-01T00:01:00.25Z": 4})


def difference(kind: Any, simulator: Any, emulator: Any, **facts: Any) -> Difference:
    return Difference(kind, 4, "somewhere", simulator, emulator, {"commits": COMMITS, **facts})


def value(simulator: Any, emulator: Any, kind: Any = TIMESTAMP, field: str = "new") -> Difference:
    return difference("value", simulator, emulator, type=kind, field=field)


def name_of(found: Difference) -> str | None:
    meant = accepted_by(found)
    return None if meant is None else meant.name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tag", difference("rule", ["nightly"], [""], about="tag", step=TAGGED)),
        (None, difference("rule", [""], ["nightly"], about="tag", step=TAGGED)),
        (None, difference("rule", ["other"], [""], about="tag", step=TAGGED)),
        ("pending timestamp", value("@4", "9999-12-31T23:59:59Z")),
        (None, value("@3", "9999-12-31T23:59:59Z")),
        ("fraction", value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z")),
        ("fraction", value("@4", "2026-01-01T00:01:00Z", field="old")),
        ("fraction", value("0001-01-01T00:00:00Z", "1-01-01T00:00:00Z")),
        (None, value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:01Z")),
        (None, value("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z", {"code": "STRING"})),
        ("infinity", value("NaN", None, FLOAT64)),
        ("infinity", value([1.0, "-Infinity"], [1.0, None], {"code": "ARRAY"})),
        (None, value(1.0, None, FLOAT64)),
        (None, value([1.0, "NaN"], [2.0, None], {"code": "ARRAY"})),
        (
            "words: row exists",
            difference(
                "text",
                "Row [1] in table T already exists",
                "Table T: Row {Int64(1)} already exists.",
            ),
        ),
        (
            None,
            difference(
                "text",
                "Row [1] in table T already exists",
                "Table U: Row {Int64(1)} already exists.",
            ),
        ),
    ],
)
def test_as_narrow_as_it_is_meant(name: str | None, found: Difference):
    assert name == name_of(found)


def test_a_replace_may_start_with_a_delete_where_the_step_replaced():
    replace = Commit((Write("replace", "T", ("K",), (("1",),)),))
    insert = Commit((Write("insert", "T", ("K",), (("1",),)),))
    facts: dict[str, Any] = {"row": ("T", "")}

    assert "replace" == name_of(
        difference("mods", ["DELETE", "INSERT"], ["INSERT"], step=replace, **facts)
    )
    assert name_of(difference("mods", ["INSERT"], ["INSERT", "x"], step=replace, **facts)) is None
    assert (
        name_of(difference("mods", ["DELETE", "INSERT"], ["INSERT"], step=insert, **facts)) is None
    )


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        (Commit((Write("update", "T", ("K", "A"), (("1", "x"),)),)), {"K", "A"}),
        (Commit((Write("update", "T", ("K", "A"), (("2", "x"),)),)), set()),
        (Commit((Write("update", "U", ("K", "A"), (("1", "x"),)),)), set()),
        (ReadWrite((Dml("UPDATE T SET A = 'x', B = C WHERE K = 1", {}),)), {"A", "B"}),
        (PartitionedDml(Dml("UPDATE T SET A = 'x' WHERE K = 1", {})), {"A"}),
    ],
)
def test_what_a_step_wrote_in_a_row(step: Any, columns: set[str]):
    assert columns == written_columns(step, "T", {"K": "1"})


def test_each_entry_has_a_name_of_its_own_and_a_reason():
    assert len({one.name for one in ACCEPTED}) == len(ACCEPTED)
    assert all(one.reason for one in ACCEPTED)
