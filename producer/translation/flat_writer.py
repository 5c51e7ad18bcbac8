"""Writes the changes of one table as flat values: a row, then what is said of the change.

All else is as in `change_writer`: shapes, keys, frames, the names of captured columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.producer.records import Mod
from tidegate.producer.translation.avro_fields import PRESENT, write_text
from tidegate.producer.translation.change_writer import ChangeWriter, Pieces, other_form
from tidegate.schemas.change_schema import FLAT_FIELDS

_KINDS = {
    "INSERT": write_text("c") + write_text("false"),
    "UPDATE": write_text("u") + write_text("false"),
    "DELETE": write_text("d") + write_text("true"),
}
"""`__op` and `__deleted`."""


class FlatWriter(ChangeWriter):
    """Writes mods under one table's registered schemas, the value flat; thread-safe."""

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the row after the change, of a DELETE that before it, and what is said of it."""
        if mod_type == "DELETE":
            row, names = self._row_pieces("old", mod.old_values)
        else:
            row, names = self._row_pieces("new", mod.new_values)
        # Neither the row nor the list of names may be null here, so no byte says that they are not.
        row, names = row[1:], names.removeprefix(PRESENT)
        return [self._value_frame, *row, _KINDS[mod_type], names]

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields behind the columns are those of the contract."""
        if schema["fields"][-len(FLAT_FIELDS) :] != list(FLAT_FIELDS):
            raise other_form(schema)
