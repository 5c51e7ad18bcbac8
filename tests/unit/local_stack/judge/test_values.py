"""Whatever way a value comes, it gets one form."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.local_stack.judge.values import canonical, canonical_json, rfc3339_us


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("7", pa.int64(), 7),
        ("abc", pa.string(), "abc"),
        (True, pa.bool_(), True),
        (1.5, pa.float64(), 1.5),
        ("NaN", pa.float64(), "NaN"),
        ("-Infinity", pa.float64(), float("-inf")),
        ("aGk=", pa.binary(), b"hi"),
        ("1.5", pa.decimal128(38, 9), Decimal("1.500000000")),
        ("2024-02-29", pa.date32(), date(2024, 2, 29)),
        ("1970-01-01T00:00:01.5Z", pa.timestamp("us", tz="UTC"), 1_500_000),
        (["1", None], pa.list_(pa.int64()), (1, None)),
        (None, pa.int64(), None),
    ],
)
def test_spanner_json_becomes_what_arrow_gives(text: Any, kind: pa.DataType, expected: Any):
    assert canonical_json(text, kind) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000_000),  # noqa: DTZ001 - Arrow gives such ones too
        (float("nan"), "NaN"),
        ([1, [None]], (1, (None,))),
        (date(2024, 1, 1), date(2024, 1, 1)),
        (None, None),
    ],
)
def test_objects_become_canonical(value: Any, expected: Any):
    assert canonical(value) == expected


def test_an_object_of_no_known_kind_is_refused():
    with pytest.raises(TypeError, match="object"):
        canonical(object())


@given(st.datetimes(datetime(1700, 1, 1), datetime(2300, 1, 1)))  # noqa: DTZ001 - a range
def test_timestamps_survive_their_text(instant: datetime):
    aware = instant.replace(tzinfo=UTC)
    text = aware.isoformat()

    assert rfc3339_us(text) == canonical(aware)
    assert rfc3339_us(text.replace("+00:00", "Z")) == canonical(aware)


def test_digits_below_a_microsecond_are_cut_off():
    assert rfc3339_us("1970-01-01T00:00:00.123456999Z") == 123_456
