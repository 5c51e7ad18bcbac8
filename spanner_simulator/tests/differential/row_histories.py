"""What a stream tells of each row must fit together, and add up to what its table holds.

The emulator breaks some of this by design (a REPLACE is one INSERT there) and has one stream
partition, so these rules hold the simulator alone to account: for values where the emulator's are
known to be wrong, and for what it has no counterpart of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from differential.running import Run
from differential.side import Rows
from differential.steps import ChangeSchema, Commit, Delete, Query, Read, ShowSchema, Step
from differential.stream_reading import ColumnType, DataRecord, Mod, StreamReading

_WITH_OLD_VALUES = ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
_LEAVES_OUT = re.compile(r"exclude_(insert|update|delete) = true")

_Row = tuple[str, str]  # table, and keys as text


def tells_all(name: str, steps: tuple[Step, ...]) -> bool:
    """Whether a stream watched one set of things, and left nothing of them out, all the time."""
    statements = [
        text
        for step in steps
        if isinstance(step, ChangeSchema)
        for text in step.statements
        if re.search(rf"CHANGE STREAM {name}\b", text)
    ]
    return not any(
        _LEAVES_OUT.search(one) or " SET FOR " in one or " DROP FOR " in one for one in statements
    )


def row_violations(
    reading: StreamReading, run: Run, steps: tuple[Step, ...]
) -> Iterator[tuple[str, str]]:
    """(commit timestamp or nothing, what is wrong) for each row that is not told rightly."""
    order = sorted(
        reading.records, key=lambda one: (one.commit_timestamp, one.transaction, one.sequence)
    )
    yield from _out_of_line(order, reading.parents)
    yield from _out_of_order(order, run, steps)
    if tells_all(reading.name, steps):
        rows = _Rows()
        for record in order:
            for mod in record.mods:
                for text in rows.tell(record, mod):
                    yield record.commit_timestamp, text
        for table, held in _tables_at_the_end(run, steps).items():
            for text in rows.unlike(table, held):
                yield "", text


def _out_of_line(
    records: list[DataRecord], parents: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, str]]:
    """A row's changes stay in one stream partition, or go down to its children."""
    last: dict[_Row, str] = {}
    for record in records:
        for mod in record.mods:
            row = _row(record, mod)
            token = last.get(row, record.token)
            if token not in _line(record.token, parents):
                yield record.commit_timestamp, f"{row} in a stream partition that is no descendant"
            last[row] = record.token


def _line(token: str, parents: Mapping[str, frozenset[str]]) -> set[str]:
    """A token and all its ancestors."""
    found: set[str] = set()
    todo = [token]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += parents.get(one, ())
    return found


def _out_of_order(
    records: list[DataRecord], run: Run, steps: tuple[Step, ...]
) -> Iterator[tuple[str, str]]:
    """A stream partition has a transaction's rows in the order in which they were written.

    The emulator orders them by key. Of mutations alone the order is certain.
    """
    told: dict[tuple[str, str], list[_Row]] = {}
    for record in records:
        rows = told.setdefault((record.commit_timestamp, record.token), [])
        rows += [_row(record, mod) for mod in record.mods]
    for (commit, _), rows in told.items():
        number = run.commits.get(commit)
        if number is not None and isinstance(step := steps[number], Commit):
            columns = {one.table: one.columns for one in records if one.commit_timestamp == commit}
            written = _written(step, columns)
            places = [written[row] for row in dict.fromkeys(rows) if row in written]
            if places != sorted(places):
                yield commit, f"rows in another order than they were written: {rows}"


def _written(step: Commit, columns: Mapping[str, tuple[ColumnType, ...]]) -> dict[_Row, int]:
    """Rows in the order of a step's mutations; none of those that are dealt with twice."""
    found: dict[_Row, int] = {}
    seen: set[_Row] = set()
    for mutation in step.mutations:
        if isinstance(mutation, Delete):
            # What goes with the deleted rows is not known.
            return {}
        keys = [one.name for one in columns.get(mutation.table, ()) if one.is_primary_key]
        for values in mutation.rows:
            named = dict(zip(mutation.columns, values, strict=True))
            row = mutation.table, _text({name: named.get(name) for name in keys})
            found[row] = len(seen)
            if row in seen or mutation.kind == "replace":
                del found[row]
            seen.add(row)
    return found


class _Rows:
    """Rows as a stream has told them so far; of each, the values that it has named."""

    def __init__(self) -> None:
        self._told: dict[_Row, dict[str, Any]] = {}
        self._keys: dict[str, list[str]] = {}

    def tell(self, record: DataRecord, mod: Mod) -> Iterator[str]:
        row = _row(record, mod)
        self._keys[record.table] = [one.name for one in record.columns if one.is_primary_key]
        held = self._told.get(row)
        if (held is None) != (record.mod_type == "INSERT"):
            yield f"{record.mod_type} of {row}, which is {'not ' if held is None else ''}there"
        if record.capture_type in _WITH_OLD_VALUES:
            for name, value in mod.old.items():
                if held is not None and name in held and held[name] != value:
                    yield f"old {name} of {row} is {value!r}, and was told as {held[name]!r}"
        if record.mod_type == "DELETE":
            self._told.pop(row, None)
        else:
            self._told[row] = (held or {}) | mod.new

    def unlike(self, table: str, held: list[dict[str, Any]]) -> Iterator[str]:
        """What is told of a table and not so, or so and not told."""
        if table not in self._keys:
            return
        names = self._keys[table]
        there = {(table, _text({name: row[name] for name in names})): row for row in held}
        told = {row: values for row, values in self._told.items() if row[0] == table}
        for row in sorted(there.keys() ^ told.keys()):
            yield f"{row} is {'there and not told' if row in there else 'told and not there'}"
        for row in sorted(there.keys() & told.keys()):
            for name in sorted(there[row].keys() & told[row].keys()):
                if there[row][name] != told[row][name]:
                    values = f"{told[row][name]!r}, and is {there[row][name]!r}"
                    yield f"{name} of {row} was told as {values}"


def _tables_at_the_end(run: Run, steps: tuple[Step, ...]) -> dict[str, list[dict[str, Any]]]:
    """Whole tables by the strong reads after which nothing is written."""
    found: dict[str, list[dict[str, Any]]] = {}
    for step, outcome in reversed(list(zip(steps, run.outcomes, strict=False))):
        if not isinstance(step, Read | Query | ShowSchema):
            break
        if isinstance(step, Read) and step.keys.is_all and not (step.index or step.limit):
            (result,) = outcome.results
            if isinstance(result, Rows) and step.at is None:
                rows = [dict(zip(step.columns, row, strict=True)) for row in result.rows]
                found.setdefault(step.table, rows)
    return found


def _row(record: DataRecord, mod: Mod) -> _Row:
    return record.table, _text(mod.keys)


def _text(keys: dict[str, Any]) -> str:
    return json.dumps(keys, sort_keys=True, ensure_ascii=False)
