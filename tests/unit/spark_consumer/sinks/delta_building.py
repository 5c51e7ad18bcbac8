"""Tables of Delta in a folder, and changes for them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow
from deltalake import DeltaTable

from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable

UTC_US = pyarrow.timestamp("us", "UTC")
MOMENT = datetime(2026, 5, 1, 12, 0, 0, 999_999, UTC)
FIRST_MOMENT = datetime(1, 1, 1, 0, 0, 0, 1, UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
# Of each type a column may have as a key: three values in ascending order.
KEYS_OF_TYPE = {
    "string": ["", "b", "c" * 100],
    "binary": [b"", b"b", b"\xff" * 100],
    "long": [-(2**63), 2**53 + 1, 2**63 - 1],
    "boolean": [False, True, None],
    "date": [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)],
    "timestamp": [FIRST_MOMENT, MOMENT, LAST_MOMENT],
    "decimal(38,9)": [
        Decimal("-99999999999999999999999999999.999999999"),
        Decimal("0.000000001"),
        Decimal("12345678901234567890123456789.123456789"),
    ],
}


def created(path, types, *, partitioned_by=()):
    """Create a table with columns of these Delta types; return its path."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    options = {"partitioned_by": list(partitioned_by)} if partitioned_by else {}
    DirectTable.create(str(path), schema=schema, properties={}, metadata="{}", **options)
    return str(path)


def rows_of(path):
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def by_text(rows):
    return sorted((tuple(row.values()) for row in rows), key=str)
