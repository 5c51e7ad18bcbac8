"""Columns of changes that neither Kafka nor releases order: their order, and their time.

A table that has them comes from a source whose events arrive out of order (`docs/protocol.md`,
7.17).  The order is text that sorts, byte by byte, as the source made the changes.
"""

from __future__ import annotations

SOURCE_ORDER = "_datastream_order"
"""The change of a row that has the highest value is the newest, whenever it was released."""

CHANGES_BEGIN_WITH = "01"
"""What the order of a change begins with; rows that were found, and not changed, are before all,
but for those of a backfill that the settings give a place among the changes."""

SOURCE_TIMESTAMP = "_datastream_source_timestamp"
"""When the source made the change, by its own clock."""

SOURCE_UUID = "_datastream_uuid"
"""What names the event, also in its copies."""

SOURCE_CHANGE_TYPE = "_datastream_change_type"
"""What the source calls the change."""

SOURCE_READ_METHOD = "_datastream_read_method"
"""How the event was read; `backfill` is in that of a row that was found."""

SOURCE_SCHEMA_KEY = "_datastream_schema_key"
"""What names the schema of the row, the same in each file with it; null in old files."""

SOURCE_TRANSACTION = "_datastream_tx_id"
"""The source's transaction; MySQL's global identifier, where the source has one."""

SOURCE_SCN = "_datastream_scn"
"""Oracle's system change number."""

SOURCE_ROW_ID = "_datastream_row_id"
"""Oracle's row id, which changes where a row moves."""
