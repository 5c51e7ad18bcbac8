"""Reads fields of a record by name, with the types that Datastream's files have.

A field that is absent or null is None: older files lack fields that newer ones have.  Numbers may
be text and text may be numbers, because the documentation and the files differ in both directions
(`tx_id`, SQL Server's `database`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from tidegate.producer.datastream.errors import InvalidEvent, WrongSchema
from tidegate.producer.datastream.position import Position
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns

_SHOWN_MAX = 80


class RecordFields:
    """The fields of one record; each method raises WrongSchema for a value of another type."""

    def __init__(self, values: Mapping[str, Any], position: Position, *, within: str = "") -> None:
        self._values = values
        self._position = position
        self._within = within

    def text(self, name: str) -> str | None:
        """Return a text; a number as its digits."""
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise self._refused(name, "a string")

    def needed_text(self, name: str) -> str:
        """Return a text that every event has; raises WrongSchema if it is absent."""
        value = self.text(name)
        if value is None:
            raise self._missing(name)
        return value

    def number(self, name: str) -> int | None:
        """Return a whole number, also from its digits."""
        value = self._values.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 40:
            return int(value)
        raise self._refused(name, "a whole number")

    def instant_us(self, name: str) -> int | None:
        """Return a time in microseconds since 1970: a number of them, or a text with its zone.

        Raises InvalidEvent for a text that is no time.
        """
        value = self._values.get(name)
        if not isinstance(value, str):
            return self.number(name)
        try:
            return parse_rfc3339_ns(value) // NS_PER_US
        except SchemaError as error:
            raise InvalidEvent.at(
                self._position,
                f"{self._path(name)} is not a time such as 2021-12-25T05:42:04.408123Z",
                found=value[:_SHOWN_MAX],
            ) from error

    def flag(self, name: str) -> bool | None:
        """Return a boolean."""
        value = self._values.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self._refused(name, "a boolean")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty if it is absent."""
        value = self._values.get(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        raise self._refused(name, "an array of strings")

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers; empty if it is absent."""
        value = self._values.get(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(type(one) is int for one in value):
            return tuple(value)
        raise self._refused(name, "an array of whole numbers")

    def joined(self, name: str) -> str | None:
        """Return a text, or the texts of a list with dots between them; None if it is absent."""
        if isinstance(self._values.get(name), list):
            return ".".join(self.texts(name)) or None
        return self.text(name)

    def record(self, name: str) -> Mapping[str, Any]:
        """Return a record that every event has; raises WrongSchema if it is absent."""
        value = self._values.get(name)
        if value is None:
            raise self._missing(name)
        if not isinstance(value, Mapping):
            raise self._refused(name, "a record")
        return value

    def rest(self, known: frozenset[str]) -> dict[str, Any]:
        """Return the fields that are not among those known."""
        return {name: value for name, value in self._values.items() if name not in known}

    def _path(self, name: str) -> str:
        return f"{self._within}.{name}" if self._within else name

    def _missing(self, name: str) -> WrongSchema:
        message = f"the record has no {self._path(name)}, which Datastream writes in every event"
        return WrongSchema.at(self._position, message)

    def _refused(self, name: str, expected: str) -> WrongSchema:
        shown = _shown(self._values[name])
        message = f"{self._path(name)} is {shown} and not {expected}"
        return WrongSchema.at(self._position, message)


def _shown(value: Any) -> str:
    """Return a value for a message, whatever its size and depth."""
    try:
        found = reprlib.repr(value)
    except ValueError:  # of a number with too many digits
        found = f"a value of type {type(value).__name__}"
    return found if len(found) <= _SHOWN_MAX else f"{found[:_SHOWN_MAX]}…"
