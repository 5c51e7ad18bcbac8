"""Parts that are broken on purpose: events of other products."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation import event_writer
from tidegate.producer.translation.debezium_writer import DebeziumWriter
from tidegate.producer.translation.event_fields import JsonField, json_field
from tidegate.producer.translation.event_writer import EventWriter
from tidegate.schemas import datastream_event
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.tables import ColumnType
from tidegate.spark_consumer.core import readable_stream

__all__ = ["BROKEN_EVENTS"]

_FOLDER = "tests/unit/producer/translation"
_WRITER = f"{_FOLDER}/test_event_writer.py"
_DEBEZIUM = f"{_FOLDER}/test_debezium_writer.py"
_READABLE = "tests/unit/spark_consumer/core/test_readable_stream.py"

_event_id = datastream_event._event_id
_facts_of_record = DebeziumWriter._facts_of_record
_read = itertools.count()


def _an_id_for_each_reading(stream: str, *place: Any) -> str:
    return _event_id(f"{stream}{next(_read)}", *place)


def _an_id_of_the_commit(stream: str, commit_us: int, transaction: str, _sequence: str) -> str:
    return _event_id(stream, commit_us, transaction, "")


def _read_now(self: DebeziumWriter, record: DataChangeRecord, token: str) -> Mapping[str, Any]:
    return {**_facts_of_record(self, record, token), "read_at_timestamp": next(_read)}


def _key_as_it_came(column_type: ColumnType) -> JsonField:
    return json_field(column_type, Envelope.DEBEZIUM)


def _all_captured(self: EventWriter, captured: Mapping[str, Any]) -> list[str]:
    return list(self._row)


def _flat_alone(filters: Any) -> Mapping[str, str]:
    return {"envelope": "flat" if "producer.envelope=flat" in filters else "tidegate"}


BROKEN_EVENTS = (
    UnitMutant(
        "an event's id that another reading of its change does not have",
        (f"{_FOLDER}/test_datastream_writer.py::TestUuid::test_a_repeat_has_the_id_of_the_first",),
        ((datastream_event, "_event_id", _an_id_for_each_reading),),
    ),
    UnitMutant(
        "one event's id for two records of a transaction",
        (f"{_FOLDER}/test_datastream_writer.py::TestUuid::test_another_change_has_another_id",),
        ((datastream_event, "_event_id", _an_id_of_the_commit),),
    ),
    UnitMutant(
        "an event with the time at which its worker read the change",
        (f"{_WRITER}::test_an_event_is_a_function_of_its_change",),
        ((DebeziumWriter, "_facts_of_record", _read_now),),
    ),
    UnitMutant(
        "an event that calls columns captured which were not",
        (f"{_WRITER}::test_json_and_avro_say_which_columns_were_captured",),
        ((EventWriter, "_captured", _all_captured),),
    ),
    UnitMutant(
        "an envelope that the consumer does not know, read as ours",
        (f"{_READABLE}::test_a_stream_of_another_envelope_is_named",),
        ((readable_stream, "recorded_form", _flat_alone),),
    ),
    UnitMutant(
        "a key in JSON as the service wrote it",
        (f"{_DEBEZIUM}::test_equal_keys_are_equal_bytes_however_the_service_writes_them",),
        ((event_writer, "json_key_field", _key_as_it_came),),
    ),
)
