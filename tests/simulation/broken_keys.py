"""Keys and names that are broken on purpose, as only tables of any schema show it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.simulation.mutant import Mutant
from tests.simulation.weather import ANY_SCHEMA
from tidegate.producer.core import parked_keys
from tidegate.producer.translation import (
    keys,
    table_evolution,
    table_registrar,
    translator,
    values,
)
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.checksums import parked_key

__all__ = ["BROKEN_KEYS"]


def _signed_number(number: float) -> float:
    return number


def _parked_text(topic: str, key: bytes) -> int:
    """Name a key by its text: bytes that are no text are all the same."""
    return parked_key(topic, key.decode("ascii", "replace").encode())


def _no_key_names(self: TableRegistrar, table: str) -> tuple[str, ...]:
    return ()


def _decimal_of_a_double(kind: str, value: Any) -> Decimal:
    return Decimal(float(value))


def _as_written(name: str) -> str:
    return name


def _broken(name: str, checker: str, *patches: tuple[Any, str, Any]) -> Mutant:
    return Mutant(name, checker, patches, first_seed=ANY_SCHEMA)


BROKEN_KEYS = (
    _broken("zeros in a key with their signs", "key_order", (keys, "_number", _signed_number)),
    _broken("a parked key known by its text", "parking", (parked_keys, "parked_key", _parked_text)),
    _broken(
        "the key of a dropped table in the order of its ordinals",
        "soundness",
        (TableRegistrar, "key_names", _no_key_names),
    ),
    _broken("a NUMERIC through a double", "values", (values, "_decimal", _decimal_of_a_double)),
    _broken(
        "names of columns compared with case",
        "soundness",
        (table_evolution, "folded", _as_written),
        (table_registrar, "folded", _as_written),
        (translator, "folded", _as_written),
    ),
)
