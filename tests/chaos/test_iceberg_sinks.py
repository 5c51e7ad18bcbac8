"""Each fault that an Iceberg changelog or mirror can have is named, and right ones have none."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.chaos.iceberg_sinks import Cut, compare_cuts_of_mirror, compare_iceberg_changelog
from tidegate.local_stack.judge.delta import ChangelogRow, ChangelogTable, ReleaseManifest
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place, origin_number
from tidegate.local_stack.judge.source import SourceTable

TYPES = {"Id": pa.string(), "N": pa.int64()}
LAYOUT = {"t": SourceTable(("Id", "N"), ("Id",))}
RELEASES = [ReleaseManifest(0, 0, 10, 2, {}), ReleaseManifest(1, 10, 20, 1, {})]


def logged(us, mod, key, new, old=None):
    change = LoggedChange("t", Place(us, "x", (0, 0), 0), mod, {"Id": key}, new, old or {})
    return LoggedTransaction(us, "x", "", frozenset({"p"}), (change,))


COMMITTED = [
    logged(5, "INSERT", "a", {"N": "1"}),
    logged(6, "INSERT", "b", {"N": "2"}),
    logged(15, "UPDATE", "a", {"N": "7"}, {"N": "1"}),
]


def row(release, ordinal, transaction, *, old=None):
    (change,) = transaction.changes
    number = change.new_values["N"]
    return ChangelogRow(
        table="t", release=release, ordinal=ordinal, place=change.place, mod_type=change.mod_type,
        keys=change.keys, new_values={**change.keys, "N": int(number)}, old_values=old,
        new_columns=None, old_columns=None, tag="", records_in_transaction=1,
        partitions_in_transaction=1, origin=origin_number("p"), source_place=change.place,
        file=f"f{release}", row_in_file=ordinal,
    )  # fmt: skip


ROWS = [row(0, 0, COMMITTED[0]), row(0, 1, COMMITTED[1]),
        row(1, 0, COMMITTED[2], old={"Id": "a", "N": 1})]  # fmt: skip


def changelog(rows):
    return [ChangelogTable("t", tuple(rows), TYPES)]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (ROWS, ""),
        (ROWS[:2], "missing: t at 15 us"),
        ([*ROWS, ROWS[2]], "duplicate: t at 15 us"),
        ([*ROWS, row(1, 1, logged(16, "INSERT", "c", {"N": "1"}))], "invented: t at 16 us"),
        ([replace(ROWS[0], ordinal=1), replace(ROWS[1], ordinal=0), ROWS[2]], "out of order"),
        ([replace(ROWS[0], row_in_file=1), replace(ROWS[1], row_in_file=0), ROWS[2]], "f0, row 1"),
        ([*ROWS[:2], replace(ROWS[2], new_values={"Id": "a", "N": 8})], "unlike the source"),
        ([ROWS[0], replace(ROWS[1], ordinal=2), ROWS[2]], "ordinals: release 0"),
        ([*ROWS[:2], replace(ROWS[2], release=0, ordinal=2)], "release 1 has 0 rows, not 1"),
    ],
)
def test_a_fault_of_the_changelog_is_named(rows, fault):
    found = compare_iceberg_changelog(changelog(rows), COMMITTED, releases=RELEASES)
    assert any(fault in one for one in found) if fault else not found


def mirror(*cuts):
    return compare_cuts_of_mirror(
        cuts, COMMITTED, changelogs=changelog(ROWS), layout=LAYOUT, newest=RELEASES[-1]
    )


def rows(*pairs):
    return {"t": [{"Id": key, "N": number} for key, number in pairs]}


FIRST, SECOND = Cut(0, 10, rows(("a", 1), ("b", 2))), Cut(1, 20, rows(("a", 7), ("b", 2)))


def test_each_cut_is_the_source_at_its_time():
    assert mirror(FIRST, SECOND) == mirror(SECOND) == mirror(SECOND, FIRST, SECOND) == []


@pytest.mark.parametrize(
    ("cut", "fault"),
    [
        (rows(("a", 7)), "lacks ('b',)"),
        (rows(("a", 7), ("b", 2), ("b", 2)), "has ('b',) 2 times"),
        (rows(("a", 7), ("b", 2), ("c", 1)), "has ('c',), which the source has not"),
        (rows(("a", 1), ("b", 2)), "the source has {'Id': 'a', 'N': 7}"),
        ({}, "lacks ('a',)"),
    ],
)
def test_a_row_that_is_not_the_sources_is_named(cut, fault):
    found = mirror(FIRST, replace(SECOND, rows=cut))
    assert any(fault in one for one in found)
    assert all(one.startswith("t at release 1: ") for one in found)


def test_a_mirror_that_took_an_update_too_early_or_stands_still_is_named():
    assert mirror(replace(FIRST, rows=SECOND.rows), SECOND)
    assert mirror(FIRST) == ["no mirror has release 1"]
    assert mirror() == ["no mirror has release 1"]


def test_deleted_rows_are_gone():
    gone = logged(18, "DELETE", "b", {}, {"N": "2"})
    found = compare_cuts_of_mirror(
        [SECOND], [*COMMITTED, gone], changelogs=changelog(ROWS), layout=LAYOUT, newest=None
    )
    assert found == ["t at release 1: has ('b',), which the source has not"]
