"""Parts that are broken on purpose: what a decoder keeps, and how values are converted."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.records import Mod
from tidegate.producer.spanner import decode_json
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.translation import avro_fields, change_writer, keys, values
from tidegate.producer.translation.avro_fields import PRESENT
from tidegate.producer.translation.flat_writer import FlatWriter
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

__all__ = ["BROKEN_DECODING"]

_DECODE = "tests/unit/producer/spanner/test_decode.py"
_FORMS = "tests/unit/producer/spanner/test_forms.py"
_JSON = "tests/unit/producer/spanner/test_decode_json.py"
_TABLES = "tests/unit/schemas/test_tables.py"
_KEYS = "tests/unit/producer/translation/test_keys.py"
_VALUES = "tests/unit/producer/translation/test_values.py"

_FLAT = "tests/unit/producer/translation/test_flat_writer.py"
_FLAT_ROWS = "test_a_value_is_the_captured_row_and_says_what_happened_to_it"

_get = ColumnTypesCache.get
_value_pieces = FlatWriter._value_pieces


def _new_row_of_a_delete(self: Any, mod_type: str, mod: Mod) -> Any:
    """Take the row after a DELETE, which holds its key alone."""
    return _value_pieces(self, mod_type, mod._replace(old_values=mod.new_values))


def _all_names(self: Any, mod_type: str, mod: Mod) -> Any:
    """Name every column, so that an absent one is NULL."""
    *pieces, names = _value_pieces(self, mod_type, mod)
    assert isinstance(names, bytes)
    every = change_writer._name_list(self._row, self._row)
    return [*pieces, every.removeprefix(PRESENT)]


def _get_for_any_layout(self: Any, layout: Any, value: Any, decode: Any) -> Any:
    return _get(self, (), value, decode)


def _get_by_name_and_code(self: Any, layout: Any, value: Any, decode: Any) -> Any:
    columns = decode(value)
    identity = tuple(
        (column.name, column.type.code, column.is_primary_key, column.ordinal) for column in columns
    )
    return self._lists.setdefault(identity, columns)


_instant = ResponseDecoder._instant


def _last_instant_of_the_microsecond(self: Any, value: Any, name: str) -> int:
    _, last_ns = self._last_timestamp
    instant_ns = _instant(self, value, name)
    is_same = last_ns // NS_PER_US == instant_ns // NS_PER_US
    self._last_timestamp = (bytes(value), last_ns if is_same else instant_ns)
    return int(self._last_timestamp[1])


_json_values = decode_json._values


def _missing_is_empty(fields: Any, name: str) -> Any:
    return _json_values(fields, name) if name in fields else {}


def _columns_each_time(self: Any, record: Any) -> Any:
    return tuple(decode_json._column(one) for one in record["column_types"])


_of_postgresql = ColumnType.from_postgresql_type


def _without_annotation(text: str) -> ColumnType:
    found = _of_postgresql(text)
    return ColumnType(found.code, found.element)


_converter = values.converter


def _converter_by_code(
    column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> values.Converter:
    return _converter(ColumnType(column_type.code, column_type.element), timestamps)


_add_row = ResponseDecoder._add_row


def _add_known_records(self: Any, value: Any, layout: Any, records: Any) -> None:
    with suppress(SchemaError):
        _add_row(self, value, layout, records)


BROKEN_DECODING = (
    UnitMutant(
        "rows of a response whose record is not known left out",
        (f"{_DECODE}::test_no_row_vanishes",),
        ((ResponseDecoder, "_add_row", _add_known_records),),
    ),
    UnitMutant(
        "a flat DELETE without the captured row",
        (f"{_FLAT}::{_FLAT_ROWS}",),
        ((FlatWriter, "_value_pieces", _new_row_of_a_delete),),
    ),
    UnitMutant(
        "a flat value whose absent columns are NULL",
        (f"{_FLAT}::{_FLAT_ROWS}",),
        ((FlatWriter, "_value_pieces", _all_names),),
    ),
    UnitMutant(
        "column lists kept without their layout",
        (f"{_DECODE}::test_equal_lists_of_another_layout_are_decoded_by_their_own",),
        ((ColumnTypesCache, "get", _get_for_any_layout),),
    ),
    UnitMutant(
        "column lists kept without an array's element type",
        (f"{_DECODE}::test_records_that_differ_in_one_field_are_not_taken_for_each_other",),
        ((ColumnTypesCache, "get", _get_by_name_and_code),),
    ),
    UnitMutant(
        "commit times kept to the microsecond",
        (f"{_DECODE}::test_records_that_differ_in_one_field_are_not_taken_for_each_other",),
        ((ResponseDecoder, "_instant", _last_instant_of_the_microsecond),),
    ),
    UnitMutant(
        "values that are missing in PostgreSQL's JSON taken for unchanged ones",
        (f"{_JSON}::test_values_that_are_missing_are_refused_and_null_is_empty",),
        ((decode_json, "_values", _missing_is_empty),),
    ),
    UnitMutant(
        "column lists of PostgreSQL's JSON decoded each time",
        (f"{_FORMS}::test_equal_column_lists_are_one_object_for_all_queries",),
        ((decode_json.JsonResponseDecoder, "_columns", _columns_each_time),),
    ),
    UnitMutant(
        "PostgreSQL's types without their annotations",
        (f"{_TABLES}::test_postgresqls_notation",),
        ((ColumnType, "from_postgresql_type", _without_annotation),),
    ),
    UnitMutant(
        "converters kept by the type code alone",
        (f"{_VALUES}::test_postgresqls_numeric_stays_text",),
        (
            (values, "converter", _converter_by_code),
            (avro_fields, "converter", _converter_by_code),
        ),
    ),
    UnitMutant(
        "a key column as a row holds it",
        (f"{_KEYS}::test_equal_keys_are_equal_bytes",),
        ((change_writer, "key_field_writer", avro_fields.field_writer),),
    ),
    UnitMutant(
        "a row's values as a key holds them",
        (f"{_KEYS}::test_the_values_of_a_row_keep_their_sign",),
        ((change_writer, "field_writer", keys.key_field_writer),),
    ),
    UnitMutant(
        "a UUID as it came",
        (f"{_VALUES}::test_a_uuid_is_written_in_lower_case",),
        ((values, "_CONVERTERS", {**values._CONVERTERS, "UUID": values._text}),),
    ),
)
