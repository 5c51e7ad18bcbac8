"""Parts that are broken on purpose: rows from before the stream, and while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.backfill import on_demand, requests, stream, table_run
from tidegate.producer.backfill.read_plan import KeyRanges
from tidegate.producer.backfill.table_run import RunPlace
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.spanner import condition_check, table_rows
from tidegate.producer.spanner.chunk_sql import KeyOrder
from tidegate.producer.spanner.table_rows import ChunkDecoder, RowsDecoder
from tidegate.producer.spanner.tables_at import TablesAt
from tidegate.spark_consumer.checkpoint import schema_store
from tidegate.spark_consumer.core import topic_schemas

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


def _announce_in_the_end(self: Any, records: Any) -> Any:
    return [*records, *(one.start for one in self._requests())]


_insert = on_demand._Announcing._insert


def _announce_again(self: Any, records: Any) -> Any:
    self._start_ns, self._announced = 0, set()
    return _insert(self, records)


_begin_waiting = on_demand._Waiting.__init__


def _forget_what_was_reported(self: Any, *arguments: Any, start_ns: int, **options: Any) -> None:
    _begin_waiting(self, *arguments, start_ns=0, **options)


def _give_up(_self: Any, error: Any) -> Any:
    raise error


def _without_a_pause(_self: Any, _held_ns: int) -> int:
    return 0


_chunk_followed_by = on_demand._Chunk._followed_by
_pause_ns = requests.TableRequest.pause_ns


def _measured_after_the_read(self: Any, place: RunPlace) -> Any:
    return _chunk_followed_by(self, place.measured(self._now_ns()) if place.since_ns else place)


def _ten_minutes_at_most(self: Any, held_ns: int) -> int:
    return min(_pause_ns(self, held_ns), 600_000_000_000)


def _own_table(table: str) -> str:
    return table


_record_of = ChunkDecoder._record_of


def _one_transaction(self: Any, table: str, transaction: str, **rest: Any) -> Any:
    return _record_of(self, table, transaction[:-7], **rest)


def _each_alone(_self: Any, topic: str) -> tuple[str, ...]:
    return (topic,)


def _own_names(_topic: str) -> str:
    return "bank.a__backfill"


_table_at = TablesAt.table


async def _of_now(self: Any, name: str, *, read_ns: int) -> Any:
    del read_ns
    return await _table_at(self, name, read_ns=None)


_wait = RunPlace._wait
_is_null_first = KeyOrder.is_null_first
_plan = condition_check._plan


def _without_its_condition(self: RunPlace, **changed: Any) -> RunPlace:
    return _wait(self, **{**changed, "where": ""})


def _nothing_further(_place: RunPlace) -> list[dict[str, str]]:
    return []


def _is_null_last(self: KeyOrder, part: Any) -> bool:
    return not _is_null_first(self, part)


def _plan_chunks_alone(channels: Any, sql: str, where: str) -> list[str]:
    return [] if sql.startswith("SELECT 1 ") else _plan(channels, sql, where)


def _no_word(_where: str, *, dialect: str) -> str:
    del dialect
    return ""


class _SilentRead:
    """A read without a sign of life: where it has to search, its worker repeats the query."""

    def __init__(self, rows: Any, _alive: Any, **_known: Any) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    async def next_size(self) -> Any:
        step = asyncio.ensure_future(self._rows.next_size())
        for _ in range(20):
            await asyncio.sleep(0)
        if step.done():
            return step.result()
        step.cancel()
        message = "silent"
        raise QueryInterrupted(message, code="UNAVAILABLE")


_ON_DEMAND = "tests/unit/producer/backfill/test_on_demand.py"
_SHARE = f"{_ON_DEMAND}::test_chunks_hold_the_watermark_for_their_share_at_most"
_RUN = "tests/unit/producer/backfill/test_table_run.py"
_CHECK = "tests/unit/producer/spanner/test_condition_check.py"
_STORE = "tests/unit/spark_consumer/checkpoint/test_schema_store.py"

BROKEN_BACKFILLS = (
    UnitMutant(
        "a chunk that is silent while Spanner searches for its rows",
        (
            f"{_ON_DEMAND}::test_a_search_that_is_silent_reports_the_time_of_its_rows",
            f"{_ON_DEMAND}::test_a_plain_chunk_that_is_silent_for_too_long_is_read_later_at_another_time",
        ),
        ((on_demand, "LongRead", _SilentRead),),
    ),
    UnitMutant(
        "rows of then with the columns of now",
        (
            "tests/unit/producer/spanner/test_tables_at.py::test_each_table_is_asked_for_once_at_a_time",
        ),
        ((TablesAt, "table", _of_now),),
    ),
    UnitMutant(
        "a run that is announced behind what is later",
        (f"{_ON_DEMAND}::test_a_run_is_announced_before_the_first_record_of_a_later_time",),
        ((on_demand._Announcing, "_insert", _announce_in_the_end),),
    ),
    UnitMutant(
        "a run that is announced by every query",
        (f"{_ON_DEMAND}::test_however_often_it_is_read_a_run_begins_at_one_place",),
        ((on_demand._Announcing, "_insert", _announce_again),),
    ),
    UnitMutant(
        "a chunk at a time that its wait has reported",
        (f"{_ON_DEMAND}::test_no_time_is_reported_that_a_chunk_is_read_at_or_after",),
        ((on_demand._Waiting, "__init__", _forget_what_was_reported),),
    ),
    UnitMutant(
        "a refused chunk that holds the watermark",
        (f"{_ON_DEMAND}::test_a_chunk_that_is_refused_is_read_later_at_another_time",),
        ((on_demand._Chunk, "_after_refusal", _give_up),),
    ),
    UnitMutant(
        "a condition lost behind a chunk",
        (
            f"{_RUN}::test_the_condition_holds_for_the_whole_run",
            "tests/simulation/test_on_demand.py::test_runs_are_read_to_their_ends_beside_changes",
        ),
        ((RunPlace, "_wait", _without_its_condition),),
    ),
    UnitMutant(
        "a condition that is in no token",
        (f"{_RUN}::test_the_condition_holds_for_the_whole_run",),
        ((table_run, "_further", _nothing_further),),
    ),
    UnitMutant(
        "NULL where the other dialect has it",
        (
            "tests/unit/producer/spanner/test_chunk_sql.py::test_every_row_comes_once_in_order_wherever_null_stands",
        ),
        ((KeyOrder, "is_null_first", _is_null_last),),
    ),
    UnitMutant(
        "a condition that is tried again",
        (f"{_ON_DEMAND}::test_a_condition_that_cannot_be_evaluated_ends_its_run_with_the_cause",),
        ((on_demand, "ConditionRefused", ZeroDivisionError),),
    ),
    UnitMutant(
        "a condition that is planned in parentheses alone",
        (f"{_CHECK}::test_what_spanner_does_not_take_is_named",),
        ((condition_check, "_plan", _plan_chunks_alone),),
    ),
    UnitMutant(
        "a condition with the time of the day",
        (f"{_CHECK}::test_what_spanner_does_not_take_is_named",),
        ((condition_check, "changing_word", _no_word),),
    ),
    UnitMutant(
        "chunks without a share of the time",
        (_SHARE,),
        ((requests.TableRequest, "pause_ns", _without_a_pause),),
    ),
    UnitMutant(
        "a share of the time without the commit of a chunk",
        (_SHARE,),
        ((on_demand._Chunk, "_followed_by", _measured_after_the_read),),
    ),
    UnitMutant(
        "a pause of ten minutes after a chunk of an hour",
        (_SHARE,),
        ((requests.TableRequest, "pause_ns", _ten_minutes_at_most),),
    ),
    UnitMutant(
        "rows on demand in the data topic",
        (f"{_ROWS}::test_a_chunk_is_records_of_fifty_and_ends_with_its_last_key",),
        ((table_rows, "beside", _own_table),),
    ),
    UnitMutant(
        "a chunk that is one transaction",
        (f"{_ROWS}::test_a_chunk_is_records_of_fifty_and_ends_with_its_last_key",),
        ((ChunkDecoder, "_record_of", _one_transaction),),
    ),
    UnitMutant(
        "rows on demand as a table of their own",
        (f"{_STORE}::test_rows_that_were_read_on_demand_belong_to_their_table",),
        ((topic_schemas.TopicSchemas, "read_from", _each_alone),),
    ),
    UnitMutant(
        "rows on demand under the names of their own topic",
        (f"{_STORE}::test_rows_that_were_read_on_demand_belong_to_their_table",),
        ((schema_store, "namespace_of", _own_names),),
    ),
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
