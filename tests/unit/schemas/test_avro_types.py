"""Names that Avro accepts; the types of columns are in test_change_schema.py."""

from __future__ import annotations

import pytest

from tidegate.schemas.avro_types import AVRO_NAME, avro_type, namespace_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import ColumnType


@pytest.mark.parametrize(
    ("name", "namespace"),
    [("bank.Items", "bank.Items"), ("eu-orders.2024", "eu_orders._2024"), ("a.ü", "a._")],
)
def test_a_namespace_has_names_that_avro_accepts(name, namespace):
    assert namespace_of(name) == namespace
    assert all(AVRO_NAME.fullmatch(part) for part in namespace.split("."))


def test_a_type_that_is_unknown_is_refused():
    with pytest.raises(SchemaError, match="unsupported column type"):
        avro_type(ColumnType("ARRAY", ColumnType("STRUCT")))
