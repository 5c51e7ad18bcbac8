"""Parts that are broken on purpose: what a record says (P3), and what is not there (P6)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.datastream.avro_container import AvroContainer
from tidegate.producer.datastream.errors import FileCutShort
from tidegate.producer.datastream.file_ledger import FileLedger
from tidegate.producer.errors import PositionExpired, QueryError
from tidegate.producer.records import Mod
from tidegate.producer.spanner.decoding.struct_rows import ResponseDecoder
from tidegate.producer.spanner.stream import SpannerQuery
from tidegate.producer.translation import change_writer, keys, values
from tidegate.producer.translation.avro_fields import PRESENT
from tidegate.producer.translation.change_writer import FlatWriter
from tidegate.schemas import datastream_event
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.spark_consumer.core.release_check import ReleaseCheck

_SPANNER = "tests/unit/producer/spanner"
_CHECK = "tests/unit/spark_consumer/core/test_release_check.py"
_settle = ReleaseCheck.settle


def _excuse(self: ReleaseCheck, step: Any, plan: Any, *, may_be_parked: bool) -> Any:
    """Release what is wrong, as `on_mismatch = "record"` does, once something was set aside."""
    if self._all_dead_letters:
        self._judge._records = self._records = True
    return _settle(self, step, plan, may_be_parked=may_be_parked)


async def _expired_whatever_the_token(
    _self: SpannerQuery, expired: PositionExpired, _at: Any
) -> QueryError:
    return expired


_records = AvroContainer.__iter__


def _ends_anywhere(container: Any) -> Any:
    try:
        yield from _records(container)
    except FileCutShort:
        return


_DECODE = "tests/unit/producer/spanner/decoding/test_struct_rows.py"
_KEYS = "tests/unit/producer/translation/test_keys.py"
_value_pieces = FlatWriter._value_pieces


def _all_names(self: Any, mod_type: str, mod: Mod) -> Any:
    """Name every column, so that an absent one is NULL."""
    *pieces, names = _value_pieces(self, mod_type, mod)
    assert isinstance(names, bytes)
    every = change_writer._name_list(self._row, self._row)
    return [*pieces, every.removeprefix(PRESENT)]


_instant = ResponseDecoder._instant


def _last_instant_of_the_microsecond(self: Any, value: Any, name: str) -> int:
    _, last_ns = self._last_timestamp
    instant_ns = _instant(self, value, name)
    is_same = last_ns // NS_PER_US == instant_ns // NS_PER_US
    self._last_timestamp = (bytes(value), last_ns if is_same else instant_ns)
    return int(self._last_timestamp[1])


_add_row = ResponseDecoder._add_row


def _add_known_records(self: Any, value: Any, layout: Any, records: Any) -> None:
    with suppress(SchemaError):
        _add_row(self, value, layout, records)


_event_id = datastream_event._event_id


def _an_id_of_the_commit(stream: str, commit_us: int, transaction: str, _sequence: str) -> str:
    return _event_id(stream, commit_us, transaction, "")


_FOLDER_FILE_SOURCE = "tests/unit/producer/datastream"
_READING = f"{_FOLDER_FILE_SOURCE}/test_object_reading.py"


def _no(*_: Any, **__: Any) -> bool:
    return False


BROKEN_RECORDS = (
    UnitMutant(
        "a UUID as it came",
        ("tests/unit/producer/translation/test_keys.py::test_equal_keys_are_equal_bytes",),
        ((values, "_CONVERTERS", {**values._CONVERTERS, "UUID": values._text}),),
    ),
    UnitMutant(
        "a row's values as a key holds them",
        (f"{_KEYS}::test_the_values_of_a_row_keep_their_sign",),
        ((change_writer, "field_writer", keys.key_field_writer),),
    ),
    UnitMutant(
        "commit times kept to the microsecond",
        (f"{_DECODE}::test_records_that_differ_in_one_field_are_not_taken_for_each_other",),
        ((ResponseDecoder, "_instant", _last_instant_of_the_microsecond),),
    ),
    UnitMutant(
        "a flat value whose absent columns are NULL",
        (
            "tests/unit/producer/translation/test_change_writer.py::test_a_value_is_the_captured_row_and_says_what_happened_to_it",
        ),
        ((FlatWriter, "_value_pieces", _all_names),),
    ),
    UnitMutant(
        "one event's id for two records of a transaction",
        (
            "tests/unit/producer/translation/test_event_writer.py::TestUuid::test_another_change_has_another_id",
        ),
        ((datastream_event, "_event_id", _an_id_of_the_commit),),
    ),
    UnitMutant(
        "rows of a response whose record is not known left out",
        (f"{_DECODE}::test_no_row_vanishes",),
        ((ResponseDecoder, "_add_row", _add_known_records),),
    ),
    UnitMutant(
        "a stream that was created again read as expired",
        (f"{_SPANNER}/test_stream.py::test_a_stream_that_was_created_again_refuses_the_token",),
        ((SpannerQuery, "_refusal_of_token", _expired_whatever_the_token),),
    ),
    UnitMutant(
        "an Avro file that was cut taken for a whole one",
        (
            "tests/unit/producer/datastream/test_damaged_files.py::test_a_file_cut_anywhere_is_noticed_unless_it_ends_between_two_blocks",
        ),
        ((AvroContainer, "__iter__", _ends_anywhere),),
    ),
    UnitMutant(
        "late files are not looked for",
        (f"{_READING}::test_a_late_file_is_published_once_and_counted",),
        ((FileLedger, "_comes_late", _no),),
    ),
    UnitMutant(
        "a release that dead letters excuse",
        (
            f"{_CHECK}::test_a_change_among_the_dead_letters_is_missing_at_its_marker_and_the_error_says_so",
            f"{_CHECK}::test_what_may_be_parked_excuses_the_transaction_and_not_the_marker",
        ),
        ((ReleaseCheck, "settle", _excuse),),
    ),
)
