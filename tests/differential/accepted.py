"""Differences that are meant, each with its reason and a test as narrow as it can be.

A difference is accepted where the specification says otherwise than the emulator does, or where the
emulator lacks what the simulator has. Whatever no entry accepts is unexplained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.differential.difference import Difference
from tests.differential.fault_words import FAULT_WORDS
from tests.differential.kinds import POSTGRES
from tests.differential.steps import (
    Batch,
    ChangeSchema,
    Delete,
    Dml,
    PartitionedDml,
    Query,
    Write,
)

__all__ = ["ACCEPTED", "Accepted", "accepted_by"]

_EMULATOR_PENDING = "9999-12-31T23:59:59Z"
_ROW_CAPTURES = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
_SET = re.compile(r"UPDATE (?P<table>\w+) SET (?P<sets>.*?) WHERE ", re.DOTALL)
_POSITION = re.compile(r"\[at \d+:\d+\]|Syntax error on line \d+, column \d+")
_TRACKED = re.compile(r"(?<=Change Stream: )([\w,]+)(?=\.)")
_POSTGRES = re.compile(r"bigint|boolean|bytea|character varying|with time zone|CREATE VIEW \w+ SQL")
_CAST = re.compile(
    r"::(character varying|double precision|timestamp with time zone|bigint|boolean|bytea|date|"
    r"jsonb|numeric|real|text)(\[\])?"
)
_IN_ROW = re.compile(r" \(row \d+\)$")
_FRACTION = re.compile(r"\.\d+Z$")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A name, why the simulator is right, and which differences are meant."""

    name: str
    reason: str
    holds: Callable[[Difference], bool]


def _is_tag(difference: Difference) -> bool:
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


def _is_pending_timestamp(difference: Difference) -> bool:
    return (
        _is_of_timestamp(difference)
        and difference.facts["field"] in ("new", "keys")
        and difference.simulator == f"@{difference.step}"
        and difference.emulator == _EMULATOR_PENDING
    )


def _is_without_fraction(difference: Difference) -> bool:
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


def _is_replaced(difference: Difference) -> bool:
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
    statements = list(_statements(step))
    kinds = {one.kind for one in mutations if isinstance(one, Write) and one.table == table}
    # Deletes, and what a replaced row loses, may cascade to this table from another one.
    deletes = any(isinstance(one, Delete) or one.kind == "replace" for one in mutations) or any(
        text.startswith("DELETE") for text in statements
    )
    inserts = any(re.match(rf"INSERT .*INTO {table} ", f"{text} ") for text in statements)
    writes = inserts or bool(kinds & {"insert", "insert_or_update"})
    return "replace" in kinds or (deletes and writes)


def _is_infinite(difference: Difference) -> bool:
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


def _is_untracked_update(difference: Difference) -> bool:
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
    return any(one.startswith(f"UPDATE {table} ") for one in _statements(step))


def _tracked_writes(
    difference: Difference, table: str, keys: dict[str, Any], columns: Any
) -> set[str]:
    """Tracked columns outside the key that a step wrote in a row.

    A mutation that updates the row and names none of them is why the emulator tells of it: what
    DML did, of which only the table is known, is then left aside.
    """
    tracked = {one.name for one in columns if not one.is_primary_key}
    step = difference.facts.get("step")
    by_mutation = _mutated_columns(step, table, keys)
    if by_mutation and not tracked & by_mutation:
        return set()
    idle = difference.facts.get("idle", frozenset())
    return tracked & written_columns(step, table, keys, idle=idle)


def written_columns(
    step: Any, table: str, keys: dict[str, Any], *, idle: frozenset[str] = frozenset()
) -> set[str]:
    """Columns that a step's statements may have written in a row; `idle` ones touched no row."""
    found = _mutated_columns(step, table, keys)
    for statement, parameters in _bound_statements(step):
        matched = _SET.match(statement)
        if matched is None or matched["table"] != table or statement in idle:
            continue
        if _may_touch(statement, parameters, keys):
            found |= set(re.findall(r"(\w+) =", matched["sets"]))
    return found


def _mutated_columns(step: Any, table: str, keys: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for mutation in getattr(step, "mutations", ()):
        if isinstance(mutation, Write) and mutation.table == table:
            for row in mutation.rows:
                named = dict(zip(mutation.columns, row, strict=True))
                if all(_plain(named.get(name)) == _plain(part) for name, part in keys.items()):
                    found |= set(mutation.columns)
    return found


def _may_touch(statement: str, parameters: Any, keys: dict[str, Any]) -> bool:
    """Whether a WHERE leaves a row in: one that asks for another key does not."""
    asked = dict(re.findall(r"(\w+) = [@$]p?(\d+)", statement.rpartition(" WHERE ")[2]))
    return all(
        _plain(parameters[f"p{asked[name]}"][0]) == _plain(part)
        for name, part in keys.items()
        if name in asked and " OR " not in statement
    )


def _statements(step: Any) -> Iterator[str]:
    return (sql for sql, _ in _bound_statements(step))


def _bound_statements(step: Any) -> Iterator[tuple[str, Any]]:
    actions = [step.dml] if isinstance(step, PartitionedDml) else getattr(step, "actions", ())
    for action in actions:
        for one in action.statements if isinstance(action, Batch) else (action,):
            if isinstance(one, Dml):
                yield one.sql, one.parameters


def _plain(data: Any) -> Any:
    return _FRACTION.sub("Z", data) if isinstance(data, str) else data


def _is_unmodified_column(difference: Difference) -> bool:
    """Columns that DML did not write, told as modified by the emulator, from a value to itself."""
    facts = difference.facts
    table = facts.get("table", "")
    if not any(
        re.match(rf"(UPDATE {table} |INSERT )", one) for one in _statements(facts.get("step"))
    ):
        return False
    if difference.kind == "column_types" and "names" in facts:
        ours, theirs = facts["names"]
        mod = facts["mods"][1]
        unlike = {name for name in mod.old if mod.new.get(name) != mod.old[name]}
        return facts["mod_type"] == "UPDATE" and ours < theirs and not (theirs - ours) & unlike
    if difference.kind == "value" and facts["field"] == "old" and difference.simulator == "absent":
        mod, name = facts["mods"][1], facts["name"]
        return bool(mod.new.get(name) == mod.old[name])
    return False


def _is_null_return(difference: Difference) -> bool:
    """A column that the statement did not name, of a row that it wrote, returned as null.

    The emulator does so for generated columns in PostgreSQL, and for every column of a row that
    an insert has updated.
    """
    action = difference.facts.get("action")
    if difference.kind != "rows" or not isinstance(action, Dml) or not action.returns:
        return False
    if not _IN_ROW.search(difference.where):
        return False
    statement, _, returned = re.split(r" (THEN RETURN|RETURNING) ", action.sql)
    updates = "INSERT OR UPDATE" in statement or "DO UPDATE" in statement
    named = re.search(r"\((.*?)\) VALUES", statement)
    listed = named[1].split(", ") if named else []
    pairs = zip(returned.split(", "), difference.simulator, difference.emulator, strict=True)
    unlike = [(name, theirs) for name, ours, theirs in pairs if ours != theirs]
    return all(
        theirs is None and (name == "gen" or (updates and name not in listed))
        for name, theirs in unlike
    )


def _is_ignored_return(difference: Difference) -> bool:
    """Rows returned by an insert of several rows that ignores those that are there."""
    action = difference.facts.get("action")
    if difference.kind != "rows" or not isinstance(action, Dml) or not action.returns:
        return False
    ignores = "INSERT OR IGNORE" in action.sql or "DO NOTHING" in action.sql
    return ignores and "), (" in action.sql and bool(_IN_ROW.search(difference.where))


def _is_order_of_faults(difference: Difference) -> bool:
    """Two faults of rows, of which each side told the one that it met first."""
    step = difference.facts.get("step")
    rows = sum(len(getattr(one, "rows", ())) or 1 for one in getattr(step, "mutations", ()))
    statements = sum(len(re.findall(r"\), \(", text)) + 1 for text in _statements(step))
    if difference.kind not in ("code", "text") or rows + statements == 0:
        return False
    ours, theirs = str(difference.simulator), str(difference.emulator)
    if difference.kind == "code":
        ours, theirs = ours.partition(" ")[2], theirs.partition(" ")[2]
    told = (
        {name for name, (one, _) in _ROW_FAULTS.items() if one.fullmatch(ours)},
        {name for name, (_, one) in _ROW_FAULTS.items() if one.fullmatch(theirs)},
    )
    if rows + statements == 1:
        # One row may break several rules.
        told = told[0] & _CONSTRAINTS, told[1] & _CONSTRAINTS
    return all(told)


def _is_back_fill(difference: Difference) -> bool:
    """Rows that a new column's default was written into."""
    step = difference.facts.get("step")
    if difference.kind != "transaction" or not isinstance(step, ChangeSchema):
        return False
    added = re.findall(r"ALTER TABLE (\w+) ADD COLUMN .* DEFAULT ", "\n".join(step.statements))
    return difference.emulator == "nothing" and all(
        record.table in added and record.mod_type == "UPDATE"
        for record in difference.facts["records"][0]
    )


def _is_null_map(difference: Difference) -> bool:
    return (
        difference.kind == "rule"
        and difference.simulator == "obeys"
        and difference.emulator == "old_values is null, of UPDATE under NEW_ROW_AND_OLD_VALUES"
    )


def _is_split_record(difference: Difference) -> bool:
    return (
        difference.kind == "rule"
        and difference.simulator == "obeys"
        and difference.emulator == "two records in a row that could be one"
    )


def _is_postgres_expression(difference: Difference) -> bool:
    """Alike but for how an expression is written."""
    both = difference.simulator, difference.emulator
    if difference.kind == "rows" and "information_schema" not in difference.where:
        return False
    return (
        difference.kind in ("ddl", "rows")
        and difference.facts.get("dialect", POSTGRES) == POSTGRES
        and bool(difference.facts or _POSTGRES.search(repr(both)))
        and _bare(repr(both[0])) == _bare(repr(both[1]))
    )


def _bare(text: str) -> str:
    """SQL without casts, qualifiers, blanks, brackets and quotes; the emulator has no VIRTUAL."""
    text = re.sub(r"\b\w+\.", "", text.replace(") VIRTUAL", ") STORED"))
    return re.sub(r"[\s()'\"\\]", "", _CAST.sub("", text)).lower()


def _is_schema_statement(difference: Difference) -> bool:
    return (
        difference.kind == "ddl"
        and difference.emulator == "nothing"
        and difference.simulator.startswith("CREATE SCHEMA ")
    )


def _is_reset_option(difference: Difference) -> bool:
    return (
        difference.kind == "ddl"
        and isinstance(difference.emulator, str)
        and difference.emulator == f"{difference.simulator}\nWITH (exclude_insert = false)"
    )


def _is_dropped_option(difference: Difference) -> bool:
    """The emulator forgets an option that a later SET OPTIONS does not name."""
    if difference.kind != "ddl" or not difference.where.startswith("GetDatabaseDdl"):
        return False
    both = difference.simulator, difference.emulator
    if not all(isinstance(one, str) and "CHANGE STREAM" in one for one in both):
        return False
    (ours, our_options), (theirs, their_options) = (_options(text) for text in both)
    return ours == theirs and their_options < our_options


def _options(statement: str) -> tuple[str, set[str]]:
    head, found, tail = statement.partition(" OPTIONS ( ")
    if not found:
        head, _, tail = statement.partition(" WITH (")
    return head, set(filter(None, tail.strip(" )").split(", ")))


def _is_exclusion_option(difference: Difference) -> bool:
    return (
        difference.kind == "rows"
        and "information_schema.change_stream_options" in difference.where
        and difference.emulator == []
        and all(str(row[1]).startswith("exclude_") for row in difference.simulator)
    )


def _is_delete_rule(difference: Difference) -> bool:
    return (
        difference.kind == "rows"
        and "FROM information_schema.referential_constraints" in difference.where
        and difference.simulator[-1:] == ["CASCADE"]
        and [*difference.simulator[:-1], "NO ACTION"] == difference.emulator
    )


def _is_nullable_in_unique_index(difference: Difference) -> bool:
    """Rows of INDEX_COLUMNS that differ in is_nullable alone, in PostgreSQL."""
    if "FROM information_schema.index_columns" not in difference.where:
        return False
    if difference.facts.get("dialect") != POSTGRES or len(difference.simulator) != 8:
        return False
    pairs = enumerate(zip(difference.simulator, difference.emulator, strict=True))
    return [(place, *pair) for place, pair in pairs if pair[0] != pair[1]] == [(6, "YES", "NO")]


def _is_rounded_maximum(difference: Difference) -> bool:
    action = difference.facts.get("action")
    if difference.kind != "rows" or not isinstance(action, Query) or "MAX(" not in action.sql:
        return False
    return _micros(difference.simulator) == difference.emulator


def _micros(data: Any) -> Any:
    if isinstance(data, list):
        return [_micros(item) for item in data]
    return re.sub(r"(\.\d{6})\d+Z$", r"\1Z", data) if isinstance(data, str) else data


def _is_table_of_the_future(difference: Difference) -> bool:
    """A query in the past of a table that was not there yet."""
    action = difference.facts.get("action")
    if difference.kind != "code" or not isinstance(action, Query) or action.at is None:
        return False
    both = str(difference.simulator), str(difference.emulator)
    return both[0].startswith("NOT_FOUND Table not found: ") and both[1].startswith(
        f"INVALID_ARGUMENT {both[0].partition(' ')[2]} [at"
    )


def _is_suspended_all(difference: Difference) -> bool:
    """A stream that watched everything and was told DROP FOR ALL."""
    return (
        difference.kind == "rows"
        and "FROM information_schema.change_streams " in difference.where
        and difference.simulator[1:] in ([False], ["NO"])
        and [difference.simulator[0], *difference.emulator[1:]]
        in ([difference.emulator[0], True], [difference.emulator[0], "YES"])
    )


def _is_order_of_names(difference: Difference) -> bool:
    """Streams that track a table, in another order."""
    if difference.kind != "text":
        return False
    ours, theirs = _TRACKED.split(difference.simulator), _TRACKED.split(difference.emulator)
    return len(ours) == 3 and [sorted(part.split(",")) for part in ours] == [
        sorted(part.split(",")) for part in theirs
    ]


def _is_update_of_deleted(difference: Difference) -> bool:
    return (
        difference.kind == "code"
        and str(difference.simulator).startswith("NOT_FOUND Row [")
        and str(difference.emulator).endswith(
            "was deleted and then updated in the same transaction."
        )
    )


def _is_internal(difference: Difference) -> bool:
    return difference.kind == "code" and str(difference.emulator).startswith(
        ("INTERNAL ZETASQL_RET_CHECK", "UNKNOWN Unexpected error in RPC handling")
    )


def _is_write_and_delete(difference: Difference) -> bool:
    if difference.kind not in ("success", "code", "text"):
        return False
    told = str(difference.emulator).removeprefix("FAILED_PRECONDITION ")
    return told.startswith("Cannot write and delete the row with key ")


def _is_stream_order(difference: Difference) -> bool:
    return (
        "case google query: order: " in difference.where
        and str(difference.simulator).startswith("UNIMPLEMENTED Change stream TVF must not be")
        and str(difference.emulator).startswith("INVALID_ARGUMENT ORDER BY does not support")
    )


def _is_wide_numeric(difference: Difference) -> bool:
    return (
        difference.kind == "success"
        and difference.facts.get("dialect") == POSTGRES
        and str(difference.simulator).startswith(
            "UNIMPLEMENTED The simulator does not support: comparing a numeric with more than 28 "
        )
    )


def _is_key_update_of_nothing(difference: Difference) -> bool:
    return (
        "UPDATE U SET k = 1 WHERE TRUE"
        in difference.where.replace(" u ", " U ").replace("true", "TRUE")
        and difference.kind == "success"
        and difference.simulator.startswith("INVALID_ARGUMENT Cannot modify a primary key column")
        and "count=0" in difference.emulator
    )


def _is_pending_read(difference: Difference) -> bool:
    """DML on a row whose commit timestamp is written already, in the same transaction."""
    return (
        difference.kind in ("success", "code")
        and any(
            "PENDING_COMMIT_TIMESTAMP" in one for one in _statements(difference.facts.get("step"))
        )
        and str(difference.emulator).endswith("has a pending CommitTimestamp")
        and str(difference.emulator).startswith(
            ("INVALID_ARGUMENT Column ", "INVALID_ARGUMENT Table _index_data_table_")
        )
    )


def _is_far_past(difference: Difference) -> bool:
    return "api: read in the far past" in difference.where and str(difference.simulator).startswith(
        "FAILED_PRECONDITION Read-only transaction timestamp"
    )


def _is_partitioned_returning(difference: Difference) -> bool:
    return "api: partitioned returning" in difference.where and str(
        difference.simulator
    ).startswith("INVALID_ARGUMENT THEN RETURN is not supported for Partitioned DML")


def _is_position(difference: Difference) -> bool:
    """Words of the parser or analyser, which point into the statement."""
    return difference.kind == "text" and bool(_POSITION.search(difference.emulator))


def _words(simulator: str, emulator: str) -> Callable[[Difference], bool]:
    """Texts of one error in two services' words; groups of one name must be equal."""
    ours, theirs = re.compile(simulator, re.DOTALL), re.compile(emulator, re.DOTALL)

    def holds(difference: Difference) -> bool:
        if difference.kind != "text":
            return False
        left, right = ours.fullmatch(difference.simulator), theirs.fullmatch(difference.emulator)
        if left is None or right is None:
            return False
        theirs_named = right.groupdict()
        return all(theirs_named[name] in (held, None) for name, held in left.groupdict().items())

    return holds


_ROW_FAULTS = {
    name: (re.compile(ours, re.DOTALL), re.compile(theirs, re.DOTALL))
    for name, ours, theirs in FAULT_WORDS
}
_CONSTRAINTS = {"check", "unique index", "foreign key"}

ACCEPTED: tuple[Accepted, ...] = (
    Accepted("tag", "the emulator leaves transaction_tag empty", _is_tag),
    Accepted(
        "pending timestamp",
        "the emulator writes the end of time for a commit timestamp",
        _is_pending_timestamp,
    ),
    Accepted(
        "fraction",
        "the emulator drops the fraction of a TIMESTAMP in keys, new_values and old_values, and "
        "writes the year 1 without its zeros",
        _is_without_fraction,
    ),
    Accepted(
        "infinity",
        "NaN and the infinities are strings in mods; the emulator writes null",
        _is_infinite,
    ),
    Accepted(
        "replace",
        "a row that is replaced, or deleted and inserted anew, gives a DELETE and an INSERT; the "
        "emulator gives one INSERT",
        _is_replaced,
    ),
    Accepted(
        "update of no tracked column",
        "gives no record; the emulator gives one under the two NEW_ROW types, and for DML",
        _is_untracked_update,
    ),
    Accepted(
        "unmodified columns of DML",
        "an UPDATE tells the columns that it wrote; the emulator tells them all for DML",
        _is_unmodified_column,
    ),
    Accepted(
        "back-fill",
        "a new column's default is written into the rows that are there; the emulator tells nobody",
        _is_back_fill,
    ),
    Accepted(
        "null old_values",
        "an empty map is {}; the emulator writes null where no tracked column was written",
        _is_null_map,
    ),
    Accepted(
        "split record",
        "changes of a row that came to nothing do not split a record; on the emulator they do",
        _is_split_record,
    ),
    Accepted(
        "expressions in PostgreSQL",
        "are printed as they were written; the emulator prints its own reading of them",
        _is_postgres_expression,
    ),
    Accepted(
        "CREATE SCHEMA",
        "is part of the schema; the emulator does not print it",
        _is_schema_statement,
    ),
    Accepted(
        "reset option",
        "a reset option is not set; the emulator prints it as false",
        _is_reset_option,
    ),
    Accepted(
        "forgotten option",
        "SET OPTIONS leaves the other options as they are; the emulator forgets them",
        _is_dropped_option,
    ),
    Accepted(
        "exclusions in CHANGE_STREAM_OPTIONS",
        "every option that is set is listed; the emulator leaves the exclusions out",
        _is_exclusion_option,
    ),
    Accepted(
        "delete rule",
        "of a foreign key that cascades is CASCADE; the emulator says NO ACTION",
        _is_delete_rule,
    ),
    Accepted(
        "NULL in unique indexes of PostgreSQL",
        "unique indexes hold rows with NULL; the emulator leaves them out",
        _is_nullable_in_unique_index,
    ),
    Accepted(
        "maximum of timestamps",
        "MAX keeps nanoseconds; the emulator cuts them off",
        _is_rounded_maximum,
    ),
    Accepted(
        "table of the future",
        "a query in the past of a table that was made later: NOT_FOUND, as for a read",
        _is_table_of_the_future,
    ),
    Accepted(
        "suspended FOR ALL",
        "a stream that watches nothing does not watch ALL; on the emulator it keeps the flag",
        _is_suspended_all,
    ),
    Accepted(
        "order of tracking streams",
        "by name; the emulator has no order that can be told",
        _is_order_of_names,
    ),
    Accepted(
        "update of a deleted row",
        "mutations apply in their order, so the row is missing: NOT_FOUND",
        _is_update_of_deleted,
    ),
    Accepted(
        "words: analysis",
        "what is wrong with a statement is told in words of one's own; the codes agree",
        _is_position,
    ),
    Accepted(
        "retention",
        "30 days are allowed by now; the emulator allows 7",
        _words(
            r"(?P<start>Invalid retention_period: .*) \[24h, 30d\]\.",
            r"(?P<start>Invalid retention_period: .*) \[24h, 7d\]\.",
        ),
    ),
    Accepted(
        "write and delete of a referenced row",
        "is no harm in one transaction; the emulator cannot do it",
        _is_write_and_delete,
    ),
    Accepted(
        "ORDER BY with a stream's function",
        "nothing may be combined with it, whatever it is",
        _is_stream_order,
    ),
    Accepted(
        "wide numerics",
        "SQL compares PostgreSQL's numerics up to 28 digits before the point, and refuses others",
        _is_wide_numeric,
    ),
    Accepted(
        "update of a key",
        "is refused whether or not there are rows; the emulator refuses it at the first row",
        _is_key_update_of_nothing,
    ),
    Accepted(
        "words: missing parameter",
        "the service's own words",
        _words(
            r"No parameter found for binding: (?P<name>\w+)",
            r"Incomplete query parameters (?P<name>\w+)",
        ),
    ),
    Accepted(
        "words: missing index",
        "the emulator leaves the table's name out",
        _words(
            r"The table \w+ does not have a secondary index called (?P<name>\w+)",
            r"The table  does not have a secondary index called (?P<name>\w+)",
        ),
    ),
    Accepted(
        "words: key not written",
        "the emulator has two texts for it",
        _words(
            r"A new row in table (?P<table>\w+) does not specify a non-null value for NOT NULL "
            r"column: (?P<column>\w+)",
            r"Cannot specify a null value for column: \w+\.(?P<column>\w+) in table: "
            r"(?P<table>\w+)",
        ),
    ),
    Accepted(
        "read of a pending timestamp by DML",
        "DML reads the columns that it needs; the emulator reads the whole row",
        _is_pending_read,
    ),
    Accepted(
        "far past",
        "a read before the version retention is refused as such; the emulator has no such limit",
        _is_far_past,
    ),
    Accepted(
        "rows of partitioned DML",
        "the service runs it in many transactions and gives no rows back; the emulator in one",
        _is_partitioned_returning,
    ),
    Accepted(
        "internal errors of the emulator",
        "are crashes that were caught; the simulator names what is wrong",
        _is_internal,
    ),
    *(
        Accepted(f"words: {name}", "the service's own words", _words(ours, theirs))
        for name, ours, theirs in FAULT_WORDS
    ),
    Accepted(
        "words: pending index",
        "an index is told by its name",
        _words(
            r"Table (?P<index>\w+) (?P<rest>cannot be accessed because it, .*)",
            r"Table _index_data_table_(?P<index>\w+) (?P<rest>cannot be accessed because it, .*)",
        ),
    ),
    Accepted(
        "rows of an insert that ignores",
        "are the rows that were written; the emulator may return another one that was given",
        _is_ignored_return,
    ),
    Accepted(
        "order of faults",
        "of several rows at fault each side tells the one that it meets first",
        _is_order_of_faults,
    ),
    Accepted(
        "columns that DML did not name",
        "are returned as they are; the emulator returns null for those that are generated in "
        "PostgreSQL, and for those of a row that an insert has updated",
        _is_null_return,
    ),
)


def accepted_by(difference: Difference) -> Accepted | None:
    """The first entry that accepts a difference."""
    return next((one for one in ACCEPTED if one.holds(difference)), None)
