from __future__ import annotations

import pytest

from spanner_simulator.core.schema.type_names import type_name
from spanner_simulator.core.values import ValueType


@pytest.mark.parametrize(
    ("value_type", "name"),
    [
        (ValueType("STRING", None, 9), "STRING"),
        (ValueType("ARRAY", ValueType("INT64")), "ARRAY<INT64>"),
        (ValueType("NUMERIC", annotation="PG_NUMERIC"), "PG.NUMERIC"),
    ],
)
def test_no_length_and_postgresqls_own_types(value_type: ValueType, name: str) -> None:
    assert type_name(value_type) == name


def test_an_array_is_named_with_its_element_or_without() -> None:
    assert type_name(ValueType("ARRAY", ValueType("INT64")), element=False) == "ARRAY"
