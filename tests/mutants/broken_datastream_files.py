"""Parts that are broken on purpose: the files that the consumer writes in Datastream's layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.datastream import order_key
from tidegate.producer.datastream.metadata import SpannerMetadata
from tidegate.producer.datastream_source import event_records
from tidegate.spark_consumer.sinks.datastream.begun_releases import BegunReleases
from tidegate.spark_consumer.sinks.datastream.open_files import OpenFiles

__all__ = ["BROKEN_DATASTREAM_FILES"]

_FOLDER = "tests/unit/spark_consumer/sinks/datastream"
_SINK = f"{_FOLDER}/test_sink.py"
_KILLED = f"{_SINK}::test_a_release_that_is_repeated_after_a_kill_at_any_step_writes_the_same_files"
_RECORDS = "tests/unit/producer/datastream_source/test_event_records.py"
_ROUND = f"{_FOLDER}/test_sink_properties.py"
_AGAIN = f"{_ROUND}::test_what_is_read_again_is_the_table_and_each_keys_history"

_begin = BegunReleases.begin


def _begun_now(self: Any, release: int, **settings: Any) -> Any:
    found, was_begun = _begin(self, release, **settings)
    return replace(found, minute=int(self._clock()) // 60), was_begun


def _settings_of_now(self: Any, release: int, **settings: Any) -> Any:
    found, was_begun = _begin(self, release, **settings)
    return replace(found, rows_max=settings["rows_max"]), was_begun


def _never_begun(self: Any, release: int, **settings: Any) -> Any:
    return _begin(self, release, **settings)[0], False


def _minutes_of_the_clock(self: Any, release: int, **settings: Any) -> Any:
    self._last_minute = 0
    return _begin(self, release, **settings)


_add = OpenFiles.add


def _loses_the_last(self: Any, topic: str, record: bytes, *, value_bytes: int) -> Any:
    for file in _add(self, topic, record, value_bytes=value_bytes):
        file.records.pop()
        yield file


_encoded = order_key._encoded


def _by_milliseconds(metadata: Any, at: int, position: Any) -> bytes:
    if isinstance(metadata, SpannerMetadata):
        return at.to_bytes(8)
    return _encoded(metadata, at, position)


def _nothing(*_: Any) -> None:
    pass


BROKEN_DATASTREAM_FILES = (
    UnitMutant(
        "a repeated release in the folder of the present minute",
        (
            _KILLED,
            f"{_SINK}::test_of_two_runs_that_begin_a_release_at_once_both_write_the_same_files",
        ),
        ((BegunReleases, "begin", _begun_now),),
    ),
    UnitMutant(
        "files of a repeated release ended by the present settings",
        (_KILLED,),
        ((BegunReleases, "begin", _settings_of_now),),
    ),
    UnitMutant(
        "files of a repeated release written again",
        (_KILLED, f"{_SINK}::test_a_release_that_is_written_already_writes_nothing"),
        ((BegunReleases, "begin", _never_begun),),
    ),
    UnitMutant(
        "files before older ones where the clock was set back",
        (f"{_SINK}::test_a_clock_that_was_set_back_does_not_put_files_before_older_ones",),
        ((BegunReleases, "begin", _minutes_of_the_clock),),
    ),
    UnitMutant(
        "the last event of a full file lost",
        (f"{_SINK}::test_files_have_datastreams_layout_and_are_in_commit_order", _AGAIN),
        ((OpenFiles, "add", _loses_the_last),),
    ),
    UnitMutant(
        "changes of Spanner sorted by an event's time",
        (_AGAIN,),
        ((order_key, "_encoded", _by_milliseconds),),
    ),
    UnitMutant(
        "a row of an UPDATE taken for a whole one",
        (f"{_RECORDS}::test_an_update_of_spanner_without_the_whole_row_is_refused",),
        ((event_records, "_require_whole_row", _nothing),),
    ),
)
