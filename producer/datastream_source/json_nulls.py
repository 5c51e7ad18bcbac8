"""Nulls of JSON, which have no type: they are named where the topic has their columns.

A record holds them as values of columns that it does not show.  One whose column has never had a
value anywhere has no place in the topic, and is left out.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegate.producer.records import DataChangeRecord


def with_known_nulls(record: DataChangeRecord, known: Collection[str]) -> DataChangeRecord:
    """Return an event's record without nulls of columns that are neither shown nor `known`."""
    (mod,) = record.mods
    values = mod.new_values or mod.old_values
    if len(values) + len(mod.keys) == len(record.columns):
        return record
    kept = {column.name for column in record.columns}.union(known)
    found = {name: value for name, value in values.items() if name in kept}
    if len(found) == len(values):
        return record
    sides = {"new_values": found} if mod.new_values else {"old_values": found}
    return record._replace(mods=(mod._replace(**sides),))
