"""Values of each Avro type as JSON text."""

from decimal import Decimal

import pytest

from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.sinks.datastream.json_fields import json_field

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}


@pytest.mark.parametrize(
    ("avro", "value", "text"),
    [
        ("long", -(2**63), "-9223372036854775808"),
        ("boolean", True, "true"), ("boolean", False, "false"),
        ("double", 0.1, "0.1"), ("double", float("nan"), '"NaN"'),
        ("float", 0.10000000149011612, "0.1"),
        ("string", 'a"b', '"a\\"b"'), ("bytes", b"\0\xff", '"AP8="'),
        (DECIMAL, Decimal("1.500000000"), "1.5"),
        ({"type": "int", "logicalType": "date"}, -1, '"1969-12-31"'),
        (MICROS, 1_700_000_000_123_456, '"2023-11-14T22:13:20.123456Z"'),
        ({"type": "string", "logicalType": "timestamp-rfc3339"}, "x", '"x"'),
        ({"type": "string", "logicalType": "uuid"}, "u", '"u"'),
        (["null", "long"], None, "null"), (["null", "long"], 1, "1"),
        ({"type": "array", "items": ["null", MICROS]}, [None, 0],
         '[null,"1970-01-01T00:00:00Z"]'),
    ],
)  # fmt: skip
def test_text(avro, value, text):
    assert json_field(avro)(value) == text


def test_another_type_is_refused():
    with pytest.raises(SchemaError, match="no column has"):
        json_field({"type": "map", "values": "long"})
