"""Translations that are broken on purpose: values, schemas, order keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.clients import WorkerTopics
from tests.simulation.mutant import Mutant
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.records import Mod
from tidegate.producer.translation import (
    change_writer,
    refreshing,
    table_registrar,
    translator,
    values,
)
from tidegate.producer.translation.avro_fields import NULL
from tidegate.producer.translation.change_writer import ChangeWriter
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_evolution import evolve
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.registry import RegisteredSchema

__all__ = ["BROKEN_TRANSLATORS"]


def _no_names(names: Any, row: Any) -> bytes:
    """Leave out which columns were captured: then the absent ones read as NULL."""
    return NULL


_name_list = change_writer._name_list


def _no_names_where_the_row_is_full(names: Any, row: Any) -> bytes:
    """Leave them out where the writer knows no other column; a reader may know one."""
    return NULL if len(names) == len(row) else _name_list(names, row)


_write = ChangeWriter.write


def _write_without_nulls(self: Any, mod_type: str, mod: Any, **source: Any) -> Any:
    keys, new, old = mod
    present = [{name: one[name] for name in one if one[name] is not None} for one in (new, old)]
    return _write(self, mod_type, Mod(keys, *present), **source)


def _write_as_the_first_change(self: Any, mod_type: str, mod: Any, **source: Any) -> Any:
    """Take the function that was compiled for another set of columns."""
    first = next((self._compiled[one] for one in self._compiled if one[0] == mod_type), None)
    if first is None:
        return _write(self, mod_type, mod, **source)
    try:
        return first(*mod, source["before"], source["number"], source["after"])
    except KeyError:
        return _write(self, mod_type, mod, **source)


_plan = translator.Translator._plan


def _plan_of_the_table(self: Any, record: Any) -> Any:
    """Take a plan that was made for another set of columns."""
    known = [plan for (name, _), plan in self._plans.items() if name == record.table_name]
    return known[0] if known else _plan(self, record)


_register = TableRegistrar.register


def _register_with_the_first_id(self: Any, table: Any, **options: Any) -> Any:
    """Write under a new schema, and name the first one."""
    encoding = _register(self, table, **options)
    first: Any = self.__dict__.setdefault("first_ids", {}).setdefault(table.name, encoding.value)
    return replace(encoding, value=RegisteredSchema(first.schema_id, encoding.value.schema))


def _evolve_without_the_record(known: Any, current: Any, shown: Any, **options: Any) -> Any:
    return evolve(known, current, () if current else shown, **options)


def _evolve_from_the_catalogue(known: Any, current: Any, shown: Any, **options: Any) -> Any:
    """Forget dropped columns whose records are still to come."""
    return evolve(None, current, () if current else shown, **options)


def _grown_from_memory(own: Any, versions: Any, *, table: str) -> Any:
    """Register what this process knows, whatever was registered before it started."""
    return own


_encode_mods = OrderKey.encode_mods


def _order_keys_of_the_record(self: OrderKey, count: int) -> list[bytes]:
    return _encode_mods(self, 1) * count


def _evolve_only_what_is_known(known: Any, current: Any, shown: Any, **options: Any) -> Any:
    """Refuse the records of a table that was dropped before this process started."""
    if known is None and current is None:
        message = "a table was dropped before its schema was known"
        raise IncompatibleChange(message)
    return evolve(known, current, shown, **options)


def _ensure_nothing(self: WorkerTopics, topic: str, *, key_schema_id: int) -> None:
    pass


def _translate_once(self: RefreshingTranslator, record: Any, *, token: str) -> Any:
    return self._translator.translate(record, token=token)


def _origin_of_the_first(self: Any, token: str) -> bytes:
    """Name the stream partition whose record came first."""
    origin: bytes = self._origins.setdefault(token, next(iter(self._origins.values()), b""))
    return origin or _origin(self, token)


_origin = translator.Translator._origin


def _no_origin(self: Any, token: str) -> bytes:
    return b""


_parse_ns = values.parse_rfc3339_ns


def _parse_microseconds(text: str) -> int:
    return _parse_ns(text) // 1_000 * 1_000


_canonical = values.canonical_rfc3339


def _text_of_microseconds(text: str) -> str:
    return _canonical(format_rfc3339(_parse_microseconds(text)))


BROKEN_TRANSLATORS = (
    Mutant(
        "nanoseconds of a timestamp cut off where it has microseconds",
        "values",
        ((values, "parse_rfc3339_ns", _parse_microseconds),),
    ),
    Mutant(
        "nanoseconds of a timestamp cut off where it is text",
        "values",
        ((values, "canonical_rfc3339", _text_of_microseconds),),
    ),
    Mutant(
        "timestamps as text with the digits that they came with",
        "values",
        ((values, "canonical_rfc3339", str),),
    ),
    Mutant(
        "the header of another stream partition",
        "origins",
        ((translator.Translator, "_origin", _origin_of_the_first),),
    ),
    Mutant(
        "no name of the stream partition in the header",
        "origins",
        ((translator.Translator, "_origin", _no_origin),),
    ),
    Mutant("absent columns written as NULL", "values", ((change_writer, "_name_list", _no_names),)),
    Mutant(
        "columns named only where the writer knows more",
        "values",
        ((change_writer, "_name_list", _no_names_where_the_row_is_full),),
    ),
    Mutant("NULL written as absent", "values", ((ChangeWriter, "write", _write_without_nulls),)),
    Mutant(
        "a function compiled for another set of columns used",
        "values",
        ((ChangeWriter, "write", _write_as_the_first_change),),
    ),
    Mutant(
        "a plan of another set of columns used",
        "soundness",
        ((translator.Translator, "_plan", _plan_of_the_table),),
    ),
    Mutant(
        "a new schema written under the first one's id",
        "values",
        ((TableRegistrar, "register", _register_with_the_first_id),),
    ),
    Mutant(
        "a record's own columns not learned",
        "soundness",
        ((refreshing, "evolve", _evolve_without_the_record),),
    ),
    Mutant(
        "dropped columns forgotten",
        "soundness",
        ((refreshing, "evolve", _evolve_from_the_catalogue),),
    ),
    Mutant(
        "schemas grown from the memory of one process",
        "schema_growth",
        ((table_registrar, "grown", _grown_from_memory),),
    ),
    Mutant(
        "one order key for all changes of a record",
        "nothing_lost",
        ((OrderKey, "encode_mods", _order_keys_of_the_record),),
    ),
    Mutant(
        "a table that was dropped before the start refused",
        "soundness",
        ((refreshing, "evolve", _evolve_only_what_is_known),),
    ),
    Mutant(
        "a new table whose topic is not made",
        "soundness",
        ((WorkerTopics, "ensure", _ensure_nothing),),
    ),
    Mutant(
        "a table that is not refreshed",
        "soundness",
        ((RefreshingTranslator, "translate", _translate_once),),
    ),
)
