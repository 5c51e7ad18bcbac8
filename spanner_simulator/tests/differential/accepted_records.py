"""Which differences between two sides' change records are meant: predicates of `accepted`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from differential.difference import Difference
from differential.steps import ChangeSchema, Delete, Dml, Write

_EMULATOR_PENDING = "9999-12-31T23:59:59Z"
_ROW_CAPTURES = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
_FRACTION = re.compile(r"\.\d+Z$")
_SET = re.compile(r"UPDATE (?P<table>\w+) SET (?P<sets>.*?) WHERE ", re.DOTALL)


def statements_of(step: Any) -> Iterator[str]:
    """The texts of a step's DML."""
    return (sql for sql, _ in _bound_statements(step))


def _bound_statements(step: Any) -> Iterator[tuple[str, Any]]:
    for action in getattr(step, "actions", ()):
        if isinstance(action, Dml):
            yield action.sql, action.parameters


# ---------------------------------------------------------------- values


def is_tag(difference: Difference) -> bool:
    tag = getattr(difference.facts.get("step"), "tag", "")
    return (
        difference.facts.get("about") == "tag"
        and difference.simulator == [tag]
        and difference.emulator == [""]
    )


def _is_of_timestamp(difference: Difference) -> bool:
    kind = difference.facts.get("type", {})
    return difference.kind == "value" and "TIMESTAMP" in (
        kind.get("code"),
        kind.get("array_element_type", {}).get("code"),
    )


def is_pending_timestamp(difference: Difference) -> bool:
    return (
        _is_of_timestamp(difference)
        and difference.facts["field"] in ("new", "keys")
        and difference.simulator == f"@{difference.step}"
        and difference.emulator == _EMULATOR_PENDING
    )


def is_without_fraction(difference: Difference) -> bool:
    if not _is_of_timestamp(difference):
        return False
    ours = difference.simulator
    if isinstance(ours, str) and ours.startswith("@"):
        # The emulator's own commit timestamp of that step.
        commits = difference.facts["commits"][1]
        ours = next((stamp for stamp, step in commits.items() if f"@{step}" == ours), ours)
    return bool(ours != difference.emulator and _whole(ours) == difference.emulator)


def _whole(data: Any) -> Any:
    if isinstance(data, list):
        return [_whole(item) for item in data]
    return re.sub("^000", "", _FRACTION.sub("Z", data)) if isinstance(data, str) else data


def is_infinite(difference: Difference) -> bool:
    changed = _without_specials(difference.simulator)
    return (
        difference.kind == "value"
        and changed != difference.simulator
        and changed == difference.emulator
    )


def _without_specials(data: Any) -> Any:
    """The data with NaN and the infinities as null."""
    if isinstance(data, list):
        return [_without_specials(item) for item in data]
    return None if data in ("NaN", "Infinity", "-Infinity") else data


# ---------------------------------------------------------------- rows and records


def is_replaced(difference: Difference) -> bool:
    step = difference.facts.get("step")
    if difference.kind == "mods":
        ours = list(difference.simulator)
        if not _may_replace(step, difference.facts["row"][0]) or "DELETE" not in ours:
            return False
        ours.remove("DELETE")
        return ours == difference.emulator
    # Where inserts are excluded, the DELETE is all that is left.
    return (
        difference.kind == "transaction"
        and difference.emulator == "nothing"
        and all(
            _may_replace(step, record.table) and record.mod_type == "DELETE"
            for record in difference.facts["records"][0]
        )
    )


def _may_replace(step: Any, table: str) -> bool:
    """Whether a step replaces rows of a table, or deletes rows and writes some there."""
    mutations = getattr(step, "mutations", ())
    statements = list(statements_of(step))
    kinds = {one.kind for one in mutations if isinstance(one, Write) and one.table == table}
    # Deletes, and what a replaced row loses, may cascade to this table from another one.
    deletes = any(isinstance(one, Delete) or one.kind == "replace" for one in mutations) or any(
        text.startswith("DELETE") for text in statements
    )
    inserts = any(text.startswith(f"INSERT INTO {table} ") for text in statements)
    writes = inserts or bool(kinds & {"insert", "insert_or_update"})
    return "replace" in kinds or (deletes and writes)


def is_untracked_update(difference: Difference) -> bool:
    if difference.kind == "transaction" and difference.simulator == "nothing":
        return all(
            _touches_nothing(difference, record.table, record, mod)
            for record in difference.facts["records"][1]
            for mod in record.mods
        )
    if difference.kind != "mods" or difference.simulator:
        return False
    changes = difference.facts["changes"][1]
    # Without old values the emulator says itself that no tracked column was written.
    return (bool(changes) and all("old_values" in change.mod.nulls for change in changes)) or all(
        _touches_nothing(difference, difference.facts["row"][0], change, change.mod)
        for change in changes
    )


def _touches_nothing(difference: Difference, table: str, record: Any, mod: Any) -> bool:
    """Whether an UPDATE of the emulator's is of a row in which no tracked column was written."""
    step = difference.facts.get("step")
    by_dml = any(one.startswith(f"UPDATE {table} ") for one in statements_of(step))
    if record.mod_type != "UPDATE" or not (record.capture_type in _ROW_CAPTURES or by_dml):
        return False
    tracked = {one.name for one in record.columns if not one.is_primary_key}
    by_mutation = _mutated_columns(step, table, mod.keys)
    # A mutation that names no tracked column is why the emulator reports the row.
    if by_mutation and not tracked & by_mutation:
        return True
    return not tracked & written_columns(step, table, mod.keys)


def written_columns(step: Any, table: str, keys: dict[str, Any]) -> set[str]:
    """Columns that a step's mutations and statements may have written in a row."""
    found = _mutated_columns(step, table, keys)
    for statement, parameters in _bound_statements(step):
        matched = _SET.match(statement)
        if matched is not None and matched["table"] == table:
            asked = dict(re.findall(r"(\w+) = [@$]p?(\d+)", statement.rpartition(" WHERE ")[2]))
            # A WHERE that names another key leaves the row out.
            if " OR " in statement or all(
                _whole(parameters[f"p{asked[name]}"][0]) == _whole(part)
                for name, part in keys.items()
                if name in asked
            ):
                found |= set(re.findall(r"(\w+) =", matched["sets"]))
    return found


def _mutated_columns(step: Any, table: str, keys: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for mutation in getattr(step, "mutations", ()):
        if isinstance(mutation, Write) and mutation.table == table:
            for row in mutation.rows:
                named = dict(zip(mutation.columns, row, strict=True))
                if all(_whole(named.get(name)) == _whole(part) for name, part in keys.items()):
                    found |= set(mutation.columns)
    return found


def is_unmodified_column(difference: Difference) -> bool:
    """Columns that the emulator reports as modified by DML, from a value to the same one."""
    facts = difference.facts
    table, writes = facts.get("table", ""), list(statements_of(facts.get("step")))
    if not any(text.startswith((f"UPDATE {table} ", f"INSERT INTO {table} ")) for text in writes):
        return False
    mod = facts["mods"][1]
    if difference.kind == "column_types" and "names" in facts:
        ours, theirs = facts["names"]
        changed = {name for name in mod.old if mod.new.get(name) != mod.old[name]}
        return facts["mod_type"] == "UPDATE" and ours < theirs and not (theirs - ours) & changed
    if difference.kind == "value" and facts["field"] == "old" and difference.simulator == "absent":
        return bool(mod.new.get(facts["name"]) == mod.old[facts["name"]])
    return False


def is_back_fill(difference: Difference) -> bool:
    """Rows that a new column's default was written into."""
    step = difference.facts.get("step")
    if difference.kind != "transaction" or not isinstance(step, ChangeSchema):
        return False
    added = re.findall(r"ALTER TABLE (\w+) ADD COLUMN .* DEFAULT ", "\n".join(step.statements))
    return difference.emulator == "nothing" and all(
        record.table in added and record.mod_type == "UPDATE"
        for record in difference.facts["records"][0]
    )


def is_null_map(difference: Difference) -> bool:
    return (difference.kind, difference.simulator, difference.emulator) == (
        *("rule", "obeys"),
        "old_values is null, of UPDATE under NEW_ROW_AND_OLD_VALUES",
    )


def is_split_record(difference: Difference) -> bool:
    return (difference.kind, difference.simulator, difference.emulator) == (
        *("rule", "obeys"),
        "two records in a row that could be one",
    )
