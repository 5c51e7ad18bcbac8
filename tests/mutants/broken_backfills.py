"""Parts that are broken on purpose: rows from before the stream."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.backfill import stream
from tidegate.producer.backfill.read_plan import KeyRanges
from tidegate.producer.spanner import table_rows
from tidegate.producer.spanner.table_rows import RowsDecoder

__all__ = ["BROKEN_BACKFILLS"]

_STREAM = "tests/unit/producer/backfill/test_stream.py"
_ROWS = "tests/unit/producer/spanner/test_table_rows.py"

_parents_of_rest = stream.parents_of_rest


def _last_parent_alone(token: str) -> tuple[str, ...] | None:
    found = _parents_of_rest(token)
    return None if found is None else found[-1:]


def _same_time(read_ns: int) -> int:
    return read_ns


async def _end_before_the_rows(self: Any) -> int | None:
    self._has_ended = True
    return await self._announcing.next_size()  # type: ignore[no-any-return]


def _end_anywhere(_self: RowsDecoder) -> None:
    pass


_add = RowsDecoder._add


def _forget_what_waits(self: Any, cells: Any) -> None:
    _add(self, cells)
    self._mods_bytes = 0


def _whole_ends(self: Any, key: Any) -> None:
    self.rows += 1
    self._ends.append(key)
    if len(self._ends) > self._ranges_max:
        self._ends = self._ends[::2]
        self._rows_in_each *= 2


BROKEN_BACKFILLS = (
    UnitMutant(
        "changes follow the last range alone",
        (f"{_STREAM}::test_the_change_stream_begins_when_all_rows_are_read",),
        ((stream, "parents_of_rest", _last_parent_alone),),
    ),
    UnitMutant(
        "changes of the read's own time come again",
        (f"{_STREAM}::test_the_change_stream_begins_when_all_rows_are_read",),
        ((stream, "_next", _same_time),),
    ),
    UnitMutant(
        "a range that leads on before its rows are read",
        (f"{_STREAM}::test_a_read_that_breaks_off_names_no_child",),
        ((stream._Followed, "next_size", _end_before_the_rows),),
    ),
    UnitMutant(
        "fewer rows than planned are enough",
        (f"{_ROWS}::test_another_number_of_rows_than_planned_is_refused",),
        ((RowsDecoder, "end", _end_anywhere), (table_rows, "_ROWS_IN_RECORD", 1)),
    ),
    UnitMutant(
        "records that depend on how many rows they may have",
        (f"{_ROWS}::test_rows_are_records_of_twenty",),
        ((table_rows, "_ROWS_IN_RECORD", 19),),
    ),
    UnitMutant(
        "rows that wait for their record are not counted",
        (f"{_ROWS}::test_what_waits_for_the_rest_of_a_record_counts",),
        ((RowsDecoder, "_add", _forget_what_waits),),
    ),
    UnitMutant(
        "ranges that end where they do not",
        ("tests/unit/producer/backfill/test_read_plan.py::test_each_row_is_in_one_range",),
        ((KeyRanges, "end_at", _whole_ends),),
    ),
)
