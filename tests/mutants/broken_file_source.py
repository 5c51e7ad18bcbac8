"""Parts that are broken on purpose: which files of Datastream are read, when and how often."""

from __future__ import annotations

import os
from heapq import heappush
from typing import Any

import fsspec

from tests.datastream_model import ModelClock
from tests.mutants.mutant import UnitMutant
from tidegate.producer.core.file_position import FilePosition
from tidegate.producer.core.parked_keys import ParkedKeys
from tidegate.producer.datastream import file_limits, file_store, json_lines
from tidegate.producer.datastream.file_store import FsspecStore, LocalStore
from tidegate.producer.datastream.read_methods import ReadKind
from tidegate.producer.datastream.store_errors import LocationGone
from tidegate.producer.datastream_source import (
    description,
    event_records,
    object_query,
    object_reading,
    published_parts,
    server_order,
    table_settings,
    translator,
)
from tidegate.producer.datastream_source.event_times import EventTimes
from tidegate.producer.datastream_source.file_ledger import FileLedger
from tidegate.producer.datastream_source.object_query import ObjectQuery
from tidegate.producer.datastream_source.object_reading import ObjectReading
from tidegate.producer.datastream_source.object_source import ObjectSource
from tidegate.producer.datastream_source.published_parts import PublishedParts
from tidegate.producer.datastream_source.seen_uuids import SeenUuids
from tidegate.producer.messages import FORM_MESSAGE
from tidegate.spark_consumer.batch import effect_loop
from tidegate.spark_consumer.sinks.delta import late_events, newest

__all__ = ["BROKEN_FILE_SOURCE"]

_FOLDER = "tests/unit/producer/datastream_source"
_READING = f"{_FOLDER}/test_object_reading.py"
_LEDGER = f"{_FOLDER}/test_file_ledger.py"
_TIMES = f"{_FOLDER}/test_event_times.py"
_DECIMALS = f"{_FOLDER}/test_known_decimals.py"
_QUERY = f"{_FOLDER}/test_object_query.py"
_LIMITS = "tests/unit/producer/datastream/test_file_limits.py"
_TABLES = f"{_FOLDER}/test_table_settings.py"
_STORE = "tests/unit/producer/datastream/test_file_store.py"
_LATE = "tests/unit/spark_consumer/sinks/delta/test_late_events.py"
_LOOP = "tests/unit/spark_consumer/batch/test_effect_loop.py"
_NEWEST = "tests/unit/spark_consumer/sinks/delta/test_newest.py"


def _through_and_forget(self: FilePosition, at_us: int) -> FilePosition:
    return self if at_us <= self.watermark_us else FilePosition(at_us)


def _no(*_: Any, **__: Any) -> bool:
    return False


def _yes(*_: Any, **__: Any) -> bool:
    return True


_with_known_nulls = translator.with_known_nulls


def _no_null(record: Any, _known: Any) -> Any:
    return _with_known_nulls(record, ())


def _any_backfill(event: Any, _later: Any) -> bool:
    return event.read_method.kind is ReadKind.BACKFILL


def _by_name(self: PublishedParts, name: str) -> None:
    if name in self._left:
        heappush(self._found, (0, name))


_parts_of = published_parts.parts_of


def _one_part(entry: str) -> list[tuple[int, int]]:
    parts = _parts_of(entry)
    return [(parts[-1][0], parts[0][1])]


def _all_of_it(_ledger: FileLedger, _file: Any) -> None:
    return None


def _next_by_name(self: FileLedger) -> Any:
    first = self._first_queued()
    return None if first is None else self._found[first[2]]


def _own_time(
    _times: EventTimes, _key: bytes, source_us: int, *, earliest_us: int, latest_us: int
) -> tuple[int, bool]:
    return max(min(source_us, latest_us), earliest_us), source_us < earliest_us


def _late_stays_late(
    _times: EventTimes, _key: bytes, source_us: int, *, earliest_us: int, latest_us: int
) -> tuple[int, bool]:
    return source_us, source_us < earliest_us


def _forget_half(self: EventTimes) -> None:
    del self._given[: len(self._given) // 2]


_close = FileLedger.close


def _close_by_the_clock(self: FileLedger, listed_us: int) -> Any:
    first_unread = FileLedger._first_unread
    FileLedger._first_unread = lambda _: None  # type: ignore[method-assign]
    try:
        return _close(self, listed_us)
    finally:
        FileLedger._first_unread = first_unread  # type: ignore[method-assign]


def _watermark_of_the_listing(self: FileLedger, listed_us: int) -> int:
    return listed_us - self._limits.lateness_us


def _kept_never(_ledger: FileLedger, name: str, first: int) -> bool:
    return int(name, 16) >> 36 >= first


def _postponed_forgotten(self: FileLedger, file: Any) -> None:
    self.complete(file, records=0)


_parked = ParkedKeys.divert


def _event_parks_a_key(self: ParkedKeys, record: Any, *, token: str) -> Any:
    parked = tuple(one._replace(form=FORM_MESSAGE) for one in record.parked)
    return _parked(self, record._replace(parked=parked), token=token)


def _one_source(_reading: ObjectReading, _event: Any) -> list[Any]:
    return []


_table_name = event_records.table_name


def _first_part(event: Any) -> str:
    return _table_name(event).rpartition(".")[2]


_folder_files, _bucket_files = LocalStore.files_below, FsspecStore.files_below


def _none_of_the_folder(self: LocalStore, folder: str) -> Any:
    try:
        return _folder_files(self, folder)
    except LocationGone:
        return []


def _none_of_the_bucket(self: FsspecStore, folder: str) -> Any:
    try:
        return _bucket_files(self, folder)
    except LocationGone:
        return []


def _denied_and_over(self: ObjectQuery, file: Any, _error: Any, *, records: int) -> Any:
    return self._reading.ended(file, records=records)


def _wall_clock(self: ModelClock) -> int:
    return self.wall_us()


_complete = FileLedger.complete


def _empty_files_forgotten(self: FileLedger, file: Any, *, records: int) -> bool:
    new = _complete(self, file, records=records)
    if not self._records[file.name]:
        del self._records[file.name]
    return new


_walk = os.walk


def _stop_walking(error: OSError) -> None:
    raise error


def _walk_of_all_or_nothing(top: str, **_: Any) -> Any:
    try:
        return list(_walk(top, onerror=_stop_walking))
    except FileNotFoundError:
        return []


def _ended(self: ObjectQuery, file: Any, *, records: int) -> Any:
    return self._reading.ended(file, records=records)


_filesystem = fsspec.filesystem


def _remembering(scheme: str, **_: Any) -> Any:
    return _filesystem(scheme)


BROKEN_FILE_SOURCE = (
    UnitMutant(
        "a row of a backfill is a late event",
        (f"{_LATE}::test_a_row_of_a_backfill_is_before_all_changes_and_never_late",),
        ((late_events, "CHANGES_BEGIN_WITH", ""),),
    ),
    UnitMutant(
        "releases of a change stream are searched for late events",
        (f"{_LOOP}::test_a_release_of_a_change_stream_is_not_searched_for_late_events",),
        ((effect_loop, "_has_events", _yes),),
    ),
    UnitMutant(
        "a file is read once, whatever is written into it then",
        (f"{_READING}::test_a_file_that_has_grown_since_it_was_read_is_read_on",
         f"{_READING}::test_a_file_that_is_written_again_with_the_same_events_is_published_once"),
        ((FileLedger, "_read_on", _no),),
    ),
    UnitMutant(
        "a refusal of a file counts as its next record",
        (f"{_READING}::test_a_file_that_was_refused_and_is_copied_again_is_read_whole",
         f"{_READING}::test_a_file_that_is_refused_again_behind_more_records_is_named_again"),
        ((ObjectReading, "_refused_from", ObjectReading.refused),),
    ),
    UnitMutant(
        "a file of a disk came when it was written elsewhere",
        (f"{_STORE}::test_a_file_that_keeps_its_time_when_it_is_copied_counts_from_when_it_came",),
        ((file_store, "_came_ns", lambda status: status.st_mtime_ns),),
    ),
    UnitMutant(
        "half a surrogate pair is a text",
        (f"{_READING}::test_an_event_that_is_no_text_goes_aside_and_the_rest_flows",),
        ((json_lines, "_is_text", _yes),),
    ),
    UnitMutant(
        "a location that is gone is an empty one",
        (f"{_STORE}::test_a_location_that_is_gone_is_not_an_empty_one",
         f"{_QUERY}::test_while_a_location_is_gone_no_file_of_it_is_taken_for_read"),
        ((LocalStore, "files_below", _none_of_the_folder),
         (FsspecStore, "files_below", _none_of_the_bucket)),
    ),
    UnitMutant(
        "a folder that is removed while it is listed hides the others",
        (f"{_STORE}::test_a_folder_that_is_removed_while_it_is_listed_hides_no_other_one",),
        ((os, "walk", _walk_of_all_or_nothing),),
    ),
    UnitMutant(
        "a file that is gone with its location is taken for read",
        (f"{_QUERY}::test_while_a_location_is_gone_no_file_of_it_is_taken_for_read",),
        ((ObjectQuery, "_gone", _ended),),
    ),
    UnitMutant(
        "a file that may not be read is taken for read",
        (f"{_QUERY}::test_a_file_that_may_not_be_read_stops_its_stream_partition_and_is_read_later",
         f"{_QUERY}::test_a_published_file_that_may_not_be_read_any_more_is_not_passed_over"),
        ((ObjectQuery, "_denied", _denied_and_over),),
    ),
    UnitMutant(
        "files are listed at intervals of the wall clock",
        (f"{_READING}::test_files_are_listed_though_the_wall_clock_is_set_back",
         f"{_FOLDER}/test_objects_query.py::test_folders_are_listed_though_the_wall_clock_is_set_back"),
        ((ModelClock, "monotonic_us", _wall_clock),),
    ),
    UnitMutant(
        "a late file without an event is forgotten",
        (f"{_READING}::test_a_late_file_without_an_event_is_late_once",),
        ((FileLedger, "complete", _empty_files_forgotten),),
    ),
    UnitMutant(
        "a listing is silent until it is whole",
        (f"{_QUERY}::test_a_long_listing_is_never_silent_for_long",),
        ((object_query, "_LISTING_STEP_US", 10**15),),
    ),
    UnitMutant(
        "what a bucket had at the first look is what it has",
        (f"{_STORE}::test_what_another_program_writes_is_seen_at_once",),
        ((fsspec, "filesystem", _remembering),),
    ),
    UnitMutant(
        "a heartbeat removes files from the position",
        (f"{_READING}::test_a_closed_minutes_files_leave_the_position_and_are_not_read_again",
         "tests/unit/producer/core/test_file_position.py::test_a_heartbeat_moves_the_watermark_and_forgets_no_file"),
        ((FilePosition, "through", _through_and_forget),),
    ),
    UnitMutant(
        "files of the position are read when their turn comes by name",
        (f"{_READING}::test_copies_are_recognised_after_a_death_whatever_is_read_first",),
        ((FileLedger, "through", _all_of_it), (FileLedger, "next_file", _next_by_name)),
    ),
    UnitMutant(
        "files of the position are read by time and not by their turns",
        (f"{_LEDGER}::test_files_of_the_position_are_read_in_the_order_of_their_turns",),
        ((PublishedParts, "found", _by_name),),
    ),
    UnitMutant(
        "a file that was read in parts is read again as a whole",
        (f"{_READING}::test_a_file_that_was_read_in_parts_is_read_again_in_parts",
         f"{_READING}::test_release_times_grow_with_the_order_though_files_are_read_in_parts",
         f"{_LEDGER}::test_parts_of_files_are_read_again_in_the_order_of_their_turns"),
        ((published_parts, "parts_of", _one_part),),
    ),
    UnitMutant(
        "minutes are closed by the clock alone",
        (f"{_READING}::test_a_backlog_is_read_without_copies_though_its_minutes_were_over_long_ago",),
        ((FileLedger, "close", _close_by_the_clock),),
    ),
    UnitMutant(
        "late files leave the position with their minute",
        (f"{_READING}::test_a_late_file_is_published_once_and_counted",),
        ((FileLedger, "_is_kept", _kept_never),),
    ),
    UnitMutant(
        "late files are not looked for",
        (f"{_READING}::test_a_late_file_is_published_once_and_counted",),
        ((FileLedger, "_comes_late", _no),),
    ),
    UnitMutant(
        "the watermark is that of the listing though files are unread",
        (f"{_LEDGER}::test_the_watermark_is_behind_the_first_file_that_was_not_read",),
        ((FileLedger, "watermark_us", _watermark_of_the_listing),),
    ),
    UnitMutant(
        "copies are published",
        (f"{_READING}::test_copies_are_recognised_after_a_death_whatever_is_read_first",),
        ((SeenUuids, "add", _yes),),
    ),
    UnitMutant(
        "an event is released at its own time, whatever the order is",
        (f"{_TIMES}::test_in_any_order_of_arrival_times_grow_with_keys",),
        ((EventTimes, "time_of", _own_time),),
    ),
    UnitMutant(
        "release times are forgotten without a trace",
        (f"{_TIMES}::test_above_the_limit_those_that_are_not_late_are_in_order_and_the_others_named",
         f"{_READING}::test_an_event_among_forgotten_ones_is_counted_and_named_by_its_record"),
        ((EventTimes, "_forget_half", _forget_half),),
    ),
    UnitMutant(
        "a late event is released below the watermark",
        (f"{_READING}::test_a_late_event_gets_the_earliest_time_that_is_open",),
        ((EventTimes, "time_of", _late_stays_late),),
    ),
    UnitMutant(
        "a file that is cut short is never read again",
        (f"{_READING}::test_a_file_that_is_being_written_is_read_on_once_it_is_whole",),
        ((FileLedger, "postpone", _postponed_forgotten),),
    ),
    UnitMutant(
        "two sources in an object are put in one order",
        (f"{_READING}::test_two_sources_in_one_object",),
        ((ObjectReading, "_require_one_source", _one_source),),
    ),
    UnitMutant(
        "the source of an object is forgotten with its files",
        (f"{_READING}::test_which_source_an_object_is_of_outlives_its_files",),
        ((object_reading, "ObjectSource", lambda _: ObjectSource("")),),
    ),
    UnitMutant(
        "an event that cannot be published parks a key",
        (f"{_FOLDER}/test_aside.py::test_it_parks_no_key",),
        ((ParkedKeys, "divert", _event_parks_a_key),),
    ),
    UnitMutant(
        "a line of JSON has any number of values",
        (f"{_LIMITS}::test_a_hostile_line_is_refused_by_name",),
        ((json_lines, "_require_few_items", lambda _: None),),
    ),
    UnitMutant(
        "compressed bytes become any number of bytes",
        (f"{_LIMITS}::test_compressed_lines_that_become_far_more_are_refused_where_they_do",),
        ((file_limits, "RATIO_MAX", 1 << 30),),
    ),
    UnitMutant(
        "transactions of two servers are put in one order",
        (f"{_READING}::test_transactions_of_another_server_cannot_be_compared_and_are_refused_by_name",),
        ((server_order, "log_of_mysql", lambda *_: ""),),
    ),
    UnitMutant(
        "a null of JSON is never named",
        (f"{_FOLDER}/test_json_nulls.py::test_a_null_is_named_once_its_column_has_had_a_value",),
        ((translator, "with_known_nulls", _no_null),),
    ),
    UnitMutant(
        "a row of any backfill takes the place of the one that repairs its table",
        (f"{_TABLES}::test_a_row_of_an_earlier_backfill_stays_before_every_change",),
        ((table_settings, "_is_of", _any_backfill),),
    ),
    UnitMutant(
        "a backfill that repairs a table is before every change",
        (f"{_TABLES}::test_a_lost_file_is_repaired_by_a_backfill_with_its_place_in_the_settings",),
        ((table_settings, "_is_of", _no),),
    ),
    UnitMutant(
        "a mirror applies changes as they come",
        (f"{_NEWEST}::test_the_newest_change_of_each_key_is_taken_as_an_insert",),
        ((newest, "is_ordered_by_column", _no),),
    ),
    UnitMutant(
        "a decimal that got wider or narrower is refused",
        (f"{_DECIMALS}::test_a_decimal_that_got_wider_and_back_keeps_its_first_type",
         f"{_DECIMALS}::test_a_decimal_that_got_narrower_and_back_stays_text"),
        ((translator, "exchanged", lambda *_: None),),
    ),
    UnitMutant(
        "a table of files that is named as rows on demand are is taken for them",
        (f"{_FOLDER}/test_description.py::test_a_table_that_is_named_as_rows_on_demand_are_is_refused",),
        ((description, "require_other_name", _no),),
    ),
    UnitMutant(
        "tables of two schemas share a name",
        (f"{_FOLDER}/test_event_records.py::test_tables_have_the_names_of_the_source",),
        ((event_records, "table_name", _first_part),),
    ),
)  # fmt: skip
