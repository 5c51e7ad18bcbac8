"""The column by which changes of a row are ordered where Kafka and releases do not order them.

A table that has it comes from a source whose events arrive out of order (`docs/protocol.md`, 7.17).
Values are text that sorts, byte by byte, as the source made the changes.
"""

from __future__ import annotations

__all__ = ["SOURCE_ORDER"]

SOURCE_ORDER = "_datastream_order"
"""Of a row's changes the one with the highest value is the newest, whenever it was released."""
