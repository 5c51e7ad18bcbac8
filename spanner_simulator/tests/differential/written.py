"""What a step wrote in a row, as far as its mutations and the texts of its statements tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from differential.steps import Batch, Dml, PartitionedDml, Write

_SET = re.compile(r"UPDATE (?P<table>\w+) SET (?P<sets>.*?) WHERE ", re.DOTALL)
_FRACTION = re.compile(r"\.\d+Z$")


def written_columns(
    step: Any, table: str, keys: dict[str, Any], *, idle: frozenset[str] = frozenset()
) -> set[str]:
    """Columns that a step's statements may have written in a row; `idle` ones touched no row."""
    found = mutated_columns(step, table, keys)
    for statement, parameters, columns in _updates(step, table, idle):
        if _may_touch(statement, parameters, keys):
            found |= columns
    return found


def surely_written(
    step: Any, table: str, keys: dict[str, Any], *, idle: frozenset[str]
) -> set[str]:
    """Columns that a step wrote in a row for certain: by its whole key, or in every row."""
    found = mutated_columns(step, table, keys)
    for statement, parameters, columns in _updates(step, table, idle):
        where = re.split(r" (?:THEN RETURN|RETURNING) ", statement.rpartition(" WHERE ")[2])[0]
        asked = dict(re.findall(r"(\w+) = [@$]p?(\d+)", where))
        is_whole_key = asked.keys() == keys.keys() and where.count(" AND ") == len(keys) - 1
        if where == "TRUE" or (is_whole_key and _may_touch(statement, parameters, keys)):
            found |= columns
    return found


def _updates(
    step: Any, table: str, idle: frozenset[str]
) -> Iterator[tuple[str, Any, frozenset[str]]]:
    """A step's updates of a table that touched rows: text, parameters and columns set."""
    for statement, parameters in _bound_statements(step):
        matched = _SET.match(statement)
        if matched is not None and matched["table"] == table and statement not in idle:
            yield statement, parameters, frozenset(re.findall(r"(\w+) =", matched["sets"]))


def mutated_columns(step: Any, table: str, keys: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for mutation in getattr(step, "mutations", ()):
        if isinstance(mutation, Write) and mutation.table == table:
            for row in mutation.rows:
                named = dict(zip(mutation.columns, row, strict=True))
                if all(
                    without_fraction(named.get(name)) == without_fraction(part)
                    for name, part in keys.items()
                ):
                    found |= set(mutation.columns)
    return found


def _may_touch(statement: str, parameters: Any, keys: dict[str, Any]) -> bool:
    """Whether a WHERE leaves a row in: one that asks for another key does not."""
    asked = dict(re.findall(r"(\w+) = [@$]p?(\d+)", statement.rpartition(" WHERE ")[2]))
    return all(
        without_fraction(parameters[f"p{asked[name]}"][0]) == without_fraction(part)
        for name, part in keys.items()
        if name in asked and " OR " not in statement
    )


def statements_of(step: Any) -> Iterator[str]:
    return (sql for sql, _ in _bound_statements(step))


def _bound_statements(step: Any) -> Iterator[tuple[str, Any]]:
    actions = [step.dml] if isinstance(step, PartitionedDml) else getattr(step, "actions", ())
    for action in actions:
        for one in action.statements if isinstance(action, Batch) else (action,):
            if isinstance(one, Dml):
                yield one.sql, one.parameters


def without_fraction(data: Any) -> Any:
    return _FRACTION.sub("Z", data) if isinstance(data, str) else data
