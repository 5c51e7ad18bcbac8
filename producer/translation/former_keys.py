"""Keys that earlier versions wrote for a row, which the dead-letter topic may still hold.

Today equal values of a key column have equal bytes (`translation.keys`).  Versions before that kept
what was read: -0.0 and 0.0 of one row were two keys.  A change that such a version has parked has
its key in the dead-letter topic, and its number among the parked keys of its stream partition.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import fastavro

from tidegate.producer.translation.avro_fields import PRESENT
from tidegate.producer.translation.keys import key_converter, key_field_writer
from tidegate.producer.translation.values import converter
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import KeyFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.wire_format import HEADER_BYTES, unframe

_AVRO_ZEROS = {
    code: tuple(PRESENT + struct.pack(form, zero) for zero in (0.0, -0.0))
    for code, form in (("FLOAT64", "<d"), ("FLOAT32", "<f"))
}
"""Zero and negative zero as the field of a key."""


class FormerKeys:
    """Compares the keys of one table over versions; thread-safe."""

    def __init__(
        self,
        table: TableSchema,
        key: RegisteredSchema,
        timestamps: TimestampForm,
        key_format: KeyFormat,
        write_json: Callable[[Mapping[str, Any]], bytes],
    ) -> None:
        """Take the table and its registered key; `write_json` writes a key in JSON."""
        self._columns = table.key_columns
        self._key = key
        self._timestamps = timestamps
        self._is_json = key_format is KeyFormat.JSON
        self._write_json = write_json
        self.may_differ = any(column.type.code in _AVRO_ZEROS for column in self._columns)
        """Whether a row that Spanner has may have had another key."""

    def todays(self, key: bytes) -> bytes:
        """Return the key that its row has today; bytes that are not a key of the table stay."""
        try:
            if self._is_json:
                return self._write_json(json.loads(key))
            return b"".join(_todays for _, _, _todays in self._fields(key))
        except (SchemaError, ValueError, TypeError, EOFError, IndexError, KeyError, struct.error):
            return key

    def former(self, key: bytes) -> tuple[bytes, ...]:
        """Return the other keys that earlier versions may have written for the row of a key."""
        if self._is_json:
            forms = _json_forms(key, [c.name for c in self._columns if c.type.code in _AVRO_ZEROS])
        else:
            fields = [
                _AVRO_ZEROS[code] if written == _AVRO_ZEROS.get(code, (b"",))[0] else (written,)
                for code, written, _ in self._fields(key)
            ]
            forms = [b"".join(one) for one in product(*fields)]
        return tuple(one for one in forms if one != key)

    def _fields(self, key: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield (type code, bytes, today's bytes) of the frame, whose code is empty, and columns.

        Raises for bytes that are not a key of the table.
        """
        schema_id, body = unframe(key)
        if schema_id != self._key.schema_id:
            raise SchemaError("a key under another schema", schema_id=schema_id)
        yield "", key[:HEADER_BYTES], key[:HEADER_BYTES]
        buffer = io.BytesIO(body)
        for column, field in zip(self._columns, self._key.schema["fields"], strict=True):
            start = buffer.tell()
            value = fastavro.schemaless_reader(buffer, field["type"], None)
            written = todays = body[start : buffer.tell()]
            kind, timestamps = column.type, self._timestamps
            if key_converter(kind, timestamps) is not converter(kind, timestamps):
                todays = key_field_writer(kind, timestamps)(value)
            yield kind.code, written, todays
        if buffer.tell() != len(body):
            raise SchemaError("bytes after a key", count=len(body) - buffer.tell())


def _json_forms(key: bytes, columns: list[str]) -> list[bytes]:
    """Return a key in JSON with each sign of the zeros in these columns.

    A text in it has no quotation mark that is not escaped, so a name in them is a column.
    """
    forms = [key]
    for name in columns:
        quoted = json.dumps(name).encode()
        for end in (b",", b"}"):
            zero, negative = quoted + b":0.0" + end, quoted + b":-0.0" + end
            forms += [one.replace(zero, negative) for one in forms if zero in one]
    return forms
