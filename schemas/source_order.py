"""Columns with the source's order and time of changes that neither Kafka nor releases order.

A table has them if its source's events arrive out of order (`docs/protocol/files.md`, 7.17).  The
order is text that sorts, byte by byte, as the source made the changes.
"""

from __future__ import annotations

SOURCE_ORDER = "_datastream_order"
"""Order in the source: the change of a row with the highest value is the newest, in any release."""

CHANGES_BEGIN_WITH = "01"
"""Prefix of the order of a change; rows from a backfill sort before all changes, except for a
backfill that the settings place among the changes."""

SOURCE_TIMESTAMP = "_datastream_source_timestamp"
"""When the source made the change, by its own clock."""

SOURCE_UUID = "_datastream_uuid"
"""Id of the event, the same in its copies."""

SOURCE_CHANGE_TYPE = "_datastream_change_type"
"""The source's name for the kind of change."""

SOURCE_READ_METHOD = "_datastream_read_method"
"""How the event was read; contains `backfill` for a row from a backfill."""

SOURCE_SCHEMA_KEY = "_datastream_schema_key"
"""Id of the row's schema, the same in each file with that schema; null in old files."""

SOURCE_TRANSACTION = "_datastream_tx_id"
"""Id of the source's transaction, if the source has one; MySQL's global identifier."""

SOURCE_SCN = "_datastream_scn"
"""Oracle's system change number."""

SOURCE_ROW_ID = "_datastream_row_id"
"""Oracle's row id, which changes where a row moves."""
