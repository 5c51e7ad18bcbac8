"""Parts that are broken on purpose: what a decoder keeps, and how values are converted."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.translation import avro_fields, values
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

__all__ = ["BROKEN_DECODING"]

_DECODE = "tests/unit/producer/spanner/test_decode.py"
_VALUES = "tests/unit/producer/translation/test_values.py"

_get = ColumnTypesCache.get


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


_converter = values.converter


def _converter_by_code(
    column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> values.Converter:
    return _converter(ColumnType(column_type.code, column_type.element), timestamps)


BROKEN_DECODING = (
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
        "converters kept by the type code alone",
        (f"{_VALUES}::test_postgresqls_numeric_stays_text",),
        (
            (values, "converter", _converter_by_code),
            (avro_fields, "converter", _converter_by_code),
        ),
    ),
    UnitMutant(
        "a UUID as it came",
        (f"{_VALUES}::test_a_uuid_is_written_in_lower_case",),
        ((values, "_CONVERTERS", {**values._CONVERTERS, "UUID": values._text}),),
    ),
)
