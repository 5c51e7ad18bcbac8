"""Which schemas of Avro a file may have: such that the bytes of an event bound what it takes.

A compiled reader allocates as it reads.  It reads nothing for a null, so an array of them may have
any number of items; and it recurses for each type within a type, and for a type within itself as
deep as the bytes say, without a limit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.producer.datastream.file_limits import DEPTH_MAX

_EMPTY_MAX = 1_000
_NOTHING = ("null",)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a value of a type takes beyond its bytes."""

    empty: int
    """Values within it, or it itself, that have no bytes."""
    depth: int


def contains_itself(schema: Any) -> bool:
    """Whether a type of a parsed schema contains itself, so that its values may be of any depth.

    Raises ValueError for a schema that lets few bytes become many values, and for one that is too
    deep.
    """
    found = _Types()
    found.facts(schema, 0)
    return found.is_recursive


class _Types:
    """The types of a schema, each named one looked at once."""

    def __init__(self) -> None:
        self.is_recursive = False
        self._named: dict[str, _Facts | None] = {}
        """None: it is being looked at, so what refers to it is within it."""

    def facts(self, schema: Any, depth: int) -> _Facts:
        if depth > DEPTH_MAX:
            raise _too_deep()
        if isinstance(schema, list):
            branches = [self.facts(one, depth + 1) for one in schema if one not in _NOTHING]
            return _within(max((one.empty for one in branches), default=0), branches)
        if isinstance(schema, str):
            return self._of_name(schema, depth)
        return self._of_mapping(schema, depth)

    def _of_name(self, name: str, depth: int) -> _Facts:
        if name not in self._named:
            return _Facts(int(name in _NOTHING), 0)
        found = self._named[name]
        if found is None:
            self.is_recursive = True
            return _Facts(0, 0)
        if depth + found.depth > DEPTH_MAX:
            raise _too_deep()
        return found

    def _of_mapping(self, schema: Mapping[str, Any], depth: int) -> _Facts:
        match schema.get("type"):
            case "record" | "error":
                name = str(schema.get("name"))
                self._named[name] = None
                fields = [self.facts(one["type"], depth + 1) for one in schema["fields"]]
                empty = sum(one.empty for one in fields) if fields else 1
                if empty > _EMPTY_MAX:
                    raise ValueError(f"a record has more than {_EMPTY_MAX} fields without bytes")
                found = self._named[name] = _within(empty, fields)
                return found
            case "array" | "map" as kind:
                items = self.facts(schema["items" if kind == "array" else "values"], depth + 1)
                if items.empty:
                    raise ValueError(f"the items of a type {kind} have parts without bytes")
                return _within(0, [items])
            case "enum" | "fixed" as kind:
                found = _Facts(int(kind == "fixed" and not schema.get("size")), 0)
                self._named[str(schema.get("name"))] = found
                return found
            case inner:
                found = self.facts(inner, depth + 1)
                return _within(found.empty, [found])


def _within(empty: int, parts: list[_Facts]) -> _Facts:
    return _Facts(empty, 1 + max((one.depth for one in parts), default=0))


def _too_deep() -> ValueError:
    return ValueError(f"types are nested deeper than {DEPTH_MAX} levels")
