"""Which differences between two sides' change records are meant: predicates of `accepted`."""

from __future__ import annotations

import re
from typing import Any

from differential.difference import Difference
from differential.steps import ChangeSchema, Delete, Write
from differential.written import (
    mutated_columns,
    statements_of,
    surely_written,
    written_columns,
)

_EMULATOR_PENDING = "9999-12-31T23:59:59Z"
_ROW_CAPTURES = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
_FRACTION = re.compile(r"\.\d+Z$")


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
    if not isinstance(data, str):
        return data
    return re.sub("^000", "", _FRACTION.sub("Z", data))


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
    inserts = any(re.match(rf"INSERT .*INTO {table} ", f"{text} ") for text in statements)
    writes = inserts or bool(kinds & {"insert", "insert_or_update"})
    return "replace" in kinds or (deletes and writes)


def is_infinite(difference: Difference) -> bool:
    return difference.kind == "value" and _without_specials(difference.simulator) == (
        difference.emulator,
        True,
    )


def _without_specials(data: Any) -> tuple[Any, bool]:
    """The data with NaN and the infinities as null, and whether there were any."""
    if isinstance(data, list):
        made = [_without_specials(item) for item in data]
        return [item for item, _ in made], any(changed for _, changed in made)
    return (None, True) if data in ("NaN", "Infinity", "-Infinity") else (data, False)


def is_untracked_update(difference: Difference) -> bool:
    step = difference.facts.get("step")
    if difference.kind == "transaction" and difference.simulator == "nothing":
        records = difference.facts["records"][1]
        return all(
            record.mod_type == "UPDATE"
            and (record.capture_type in _ROW_CAPTURES or _updates(step, record.table))
            and not _tracked_writes(difference, record.table, mod.keys, record.columns)
            for record in records
            for mod in record.mods
        )
    if difference.kind == "mods" and not difference.simulator:
        changes = difference.facts["changes"][1]
        # Without old values the emulator says itself that no tracked column was written.
        if changes and all("old_values" in change.mod.nulls for change in changes):
            return True
        return all(
            change.mod_type == "UPDATE"
            and (change.capture_type in _ROW_CAPTURES or _updates(step, difference.facts["row"][0]))
            and not _tracked_writes(
                difference, difference.facts["row"][0], change.mod.keys, change.columns
            )
            for change in changes
        )
    return False


def _updates(step: Any, table: str) -> bool:
    """Whether a step updates a table by DML."""
    return any(one.startswith(f"UPDATE {table} ") for one in statements_of(step))


def _tracked_writes(
    difference: Difference, table: str, keys: dict[str, Any], columns: Any
) -> set[str]:
    """Tracked columns outside the key that a step wrote in a row.

    A mutation that updates the row and names none of them is why the emulator tells of it: what
    DML did, of which only the table is known, is then left aside.
    """
    tracked = {one.name for one in columns if not one.is_primary_key}
    step = difference.facts.get("step")
    by_mutation = mutated_columns(step, table, keys)
    if by_mutation and not tracked & by_mutation:
        return set()
    idle = difference.facts.get("idle", frozenset())
    return tracked & written_columns(step, table, keys, idle=idle)


def is_unmodified_column(difference: Difference) -> bool:
    """Columns that DML did not write, told as modified by the emulator, from a value to itself."""
    facts = difference.facts
    table, step = facts.get("table", ""), facts.get("step")
    writes = [rf"UPDATE {table} ", rf"INSERT .*INTO {table} "]
    if not any(re.match(one, text) for one in writes for text in statements_of(step)):
        return False
    if difference.kind == "column_types" and "names" in facts:
        ours, theirs = facts["names"]
        mod = facts["mods"][1]
        unlike = {name for name in mod.old if mod.new.get(name) != mod.old[name]}
        written = surely_written(step, table, mod.keys, idle=facts.get("idle", frozenset()))
        beyond = theirs - ours
        return facts["mod_type"] == "UPDATE" and ours < theirs and not beyond & (unlike | written)
    if difference.kind == "value" and facts["field"] == "old" and difference.simulator == "absent":
        mod, name = facts["mods"][1], facts["name"]
        return bool(mod.new.get(name) == mod.old[name])
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
    return (
        difference.kind == "rule"
        and difference.simulator == "obeys"
        and difference.emulator == "old_values is null, of UPDATE under NEW_ROW_AND_OLD_VALUES"
    )


def is_split_record(difference: Difference) -> bool:
    return (
        difference.kind == "rule"
        and difference.simulator == "obeys"
        and difference.emulator == "two records in a row that could be one"
    )


def is_table_after_suspension(difference: Difference) -> bool:
    """Changes of tables that were made after a stream was told DROP FOR ALL."""
    if difference.kind != "transaction" or difference.simulator != "nothing":
        return False
    alter = f"ALTER CHANGE STREAM {difference.facts['stream']} "
    ddl = difference.facts["ddl"]
    last = max(
        (at for at, one in enumerate(ddl) if re.match(rf"{alter}(SET|DROP) FOR", one)), default=-1
    )
    if last < 0 or ddl[last] != f"{alter}DROP FOR ALL":
        return False
    made = {found[1] for one in ddl[last:] if (found := re.match(r"CREATE TABLE (\w+)", one))}
    return {record.table for record in difference.facts["records"][1]} <= made
