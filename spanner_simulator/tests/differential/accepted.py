"""Differences that are meant, each with its reason and a test as narrow as it can be.

A difference is accepted where the specification says otherwise than the emulator does, or where the
emulator lacks what the simulator has. Whatever no entry accepts is unexplained.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from differential.accepted_records import (
    is_back_fill,
    is_infinite,
    is_null_map,
    is_pending_timestamp,
    is_replaced,
    is_split_record,
    is_table_after_suspension,
    is_tag,
    is_unmodified_column,
    is_untracked_update,
    is_without_fraction,
)
from differential.difference import Difference
from differential.fault_words import FAULT_WORDS
from differential.kinds import POSTGRES
from differential.steps import Delete, Dml, Query, Write
from differential.written import statements_of, without_fraction

_NO_TABLE = re.compile(r"Table not found: \w+")
_NO_COLUMN = re.compile(r"Column not found in table \w+: (\w+)")
_POSITION = re.compile(r"\[at 1:(\d+)\]")
_MISSING = re.compile(r"NOT_FOUND Row \[.*\] in table (?P<table>\w+) is missing\..*", re.DOTALL)
_DELETED = re.compile(
    r"INVALID_ARGUMENT Row \{.*\} in (?P<table>\w+) was deleted and then updated in the same "
    r"transaction\.",
    re.DOTALL,
)
_TRACKED = re.compile(r"(?<= is tracked by )(\d+) Change Stream: ([\w,]+)(?=\.)")
_POSTGRES = re.compile(r"bigint|boolean|bytea|character varying|with time zone|CREATE VIEW \w+ SQL")
_EXPRESSION = re.compile(r" DEFAULT | GENERATED ALWAYS AS | CHECK|^CREATE VIEW ")
_EXPRESSION_COLUMNS = ("column_default", "generation_expression", "check_clause", "view_definition")
_CAST = re.compile(
    r"::(character varying|double precision|timestamp with time zone|bigint|boolean|bytea|date|"
    r"jsonb|numeric|real|text)(\[\])?"
)
_IN_ROW = re.compile(r" \(row \d+\)$")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A name, why the simulator is right, and which differences are meant."""

    name: str
    reason: str
    holds: Callable[[Difference], bool]


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
    if not (ignores and "), (" in action.sql and _IN_ROW.search(difference.where)):
        return False
    pairs = zip(difference.simulator, difference.emulator, strict=True)
    return all(_is_given(value, action) for pair in pairs if pair[0] != pair[1] for value in pair)


def _is_given(value: Any, action: Dml) -> bool:
    """Whether a statement writes a value into some column."""
    bound = [without_fraction(one) for one, _ in action.parameters.values()]
    if without_fraction(value) in bound:
        return True
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value] in action.sql
    return (
        str(value).replace("\n", "\\n").replace("'", "\\'") in action.sql
        or str(value).replace("'", "''") in action.sql
    )


def _is_order_of_faults(difference: Difference) -> bool:
    """Two faults of rows, of which each side told the one that it met first.

    Constraints are checked when all rows are written, in no certain order. Rows themselves come in
    their order, except that the emulator looks for all rows of an INSERT that are there before it
    looks for parents.
    """
    if difference.kind not in ("code", "text"):
        return False
    step = difference.facts.get("step")
    told = _row_faults(difference)
    if all(some & _CONSTRAINTS for some in told):
        return bool(getattr(step, "mutations", ()) or list(statements_of(step)))
    inserts_rows = any(re.match(r"INSERT .*\), \(", text) for text in statements_of(step))
    return inserts_rows and told == ({"parent missing"}, {"row exists, by DML"})


def _row_faults(difference: Difference) -> tuple[set[str], set[str]]:
    """Names of the faults of rows that each side tells in its words."""
    ours, theirs = _words_of(difference)
    return (
        {name for name, (one, _) in _ROW_FAULTS.items() if one.fullmatch(ours)},
        {name for name, (_, one) in _ROW_FAULTS.items() if one.fullmatch(theirs)},
    )


def _words_of(difference: Difference) -> tuple[str, str]:
    """What both sides say, without their codes."""
    ours, theirs = str(difference.simulator), str(difference.emulator)
    if difference.kind == "text":
        return ours, theirs
    return ours.partition(" ")[2], theirs.partition(" ")[2]


def _succeeds_or_fails_by_a_row(difference: Difference) -> bool:
    """Whether the simulator did what was asked, or tells a fault of rows that it met."""
    if difference.kind == "success":
        return not _is_refusal(difference.simulator)
    return difference.kind in ("code", "text") and bool(_row_faults(difference)[0])


def _is_refusal(said: Any) -> bool:
    return not str(said).startswith("succeeds: ")


def _is_postgres_expression(difference: Difference) -> bool:
    """Alike but for how an expression is written."""
    if difference.facts.get("dialect", POSTGRES) != POSTGRES:
        return False
    if difference.kind == "ddl":
        # Texts may have line breaks of their own.
        ours, theirs = (
            re.split(r"\n(?=  |\))", one) for one in (difference.simulator, difference.emulator)
        )
        is_postgres = bool(difference.facts or _POSTGRES.search(difference.simulator))
        return is_postgres and _are_alike(ours, theirs, [_EXPRESSION.search(one) for one in ours])
    names = re.match(r"SELECT (.*) FROM information_schema\.", difference.where)
    if difference.kind != "rows" or names is None or not _IN_ROW.search(difference.where):
        return False
    may_differ = [name in _EXPRESSION_COLUMNS for name in names[1].split(", ")]
    return _are_alike(difference.simulator, difference.emulator, may_differ)


def _are_alike(ours: list[Any], theirs: list[Any], may_differ: list[Any]) -> bool:
    """Whether two lists differ in expressions alone, and those in how they are written."""
    return len(ours) == len(theirs) and all(
        one == two or (may and _bare(str(one)) == _bare(str(two)))
        for one, two, may in zip(ours, theirs, may_differ, strict=True)
    )


def _bare(text: str) -> str:
    """SQL without casts, qualifiers, blanks and brackets; the emulator has no VIRTUAL.

    Texts in it stay as they are; it is numbers that the emulator puts into quotes.
    """
    parts = re.split(r"('(?:[^']|'')*')", text.replace(") VIRTUAL", ") STORED"))
    for place, part in enumerate(parts):
        if place % 2 == 0:
            parts[place] = re.sub(r"\b[a-z_]\w*\.|[\s()\"]", "", _CAST.sub("", part)).lower()
        elif re.fullmatch(r"'-?[\d.]+'", part):
            parts[place] = part.strip("'").removesuffix(".0")
    return "".join(parts)


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


def _is_of_the_future(difference: Difference) -> bool:
    """A query in the past of a table or a column that was not there yet."""
    action = difference.facts.get("action")
    if difference.kind != "text" or not isinstance(action, Query) or action.at is None:
        return False
    ours, theirs = difference.simulator, difference.emulator
    if _NO_TABLE.fullmatch(ours):
        return bool(theirs.startswith(f"{ours} [at "))
    column = _NO_COLUMN.fullmatch(ours)
    return column is not None and theirs.startswith(
        (f'[ERROR] column "{column[1]}" does not exist', f"Unrecognized name: {column[1]}")
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
    """Streams that track a table, in another order, or one of them twice."""
    if difference.kind != "text":
        return False
    ours, theirs = _TRACKED.split(difference.simulator), _TRACKED.split(difference.emulator)
    if len(ours) != 4 or len(theirs) != 4 or ours[::3] != theirs[::3]:
        return False
    names, their_names = ours[2].split(","), theirs[2].split(",")
    return (
        len(names) == int(ours[1])
        and len(their_names) == int(theirs[1])
        and names == sorted(set(their_names))
    )


def _is_update_of_deleted(difference: Difference) -> bool:
    ours = _MISSING.fullmatch(str(difference.simulator))
    theirs = _DELETED.fullmatch(str(difference.emulator))
    if difference.kind != "code" or ours is None or theirs is None:
        return False
    step = difference.facts.get("step")
    mutations = getattr(step, "mutations", ())
    updated = [
        at
        for at, one in enumerate(mutations)
        if isinstance(one, Write) and (one.table, one.kind) == (ours["table"], "update")
    ]
    # The row's own delete, or that of a row which it goes with.
    deletes = any(isinstance(one, Delete) for one in mutations[: max(updated, default=0)]) or any(
        text.startswith("DELETE ") for text in statements_of(step)
    )
    return ours["table"] == theirs["table"] and bool(updated) and deletes


def _is_internal(difference: Difference) -> bool:
    return (
        difference.kind == "code"
        and str(difference.simulator).startswith("INVALID_ARGUMENT ")
        and str(difference.emulator).startswith(
            ("INTERNAL ZETASQL_RET_CHECK", "UNKNOWN Unexpected error in RPC handling")
        )
    )


def _is_write_and_delete(difference: Difference) -> bool:
    told = str(difference.emulator).removeprefix("FAILED_PRECONDITION ")
    return told.startswith(
        "Cannot write and delete the row with key "
    ) and _succeeds_or_fails_by_a_row(difference)


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
        and _succeeds_or_fails_by_a_row(difference)
        and any(
            "PENDING_COMMIT_TIMESTAMP" in one for one in statements_of(difference.facts.get("step"))
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


def _is_excerpt(difference: Difference) -> bool:
    """One sentence about one place; the statement below it is cut off elsewhere, or not at all."""
    ours, theirs = _sentences(difference)
    return bool(ours) and ours == theirs and "..." in difference.emulator


def _is_place(difference: Difference) -> bool:
    """One sentence about two neighbouring places."""
    ours, theirs = (_POSITION.split(one) for one in _sentences(difference))
    if len(ours) != 3 or len(theirs) != 3 or ours[::2] != theirs[::2]:
        return False
    return int(ours[1]) - int(theirs[1]) == 1


def _sentences(difference: Difference) -> tuple[str, str]:
    """Both texts without the statement that they quote; empty for anything but texts."""
    if difference.kind != "text" or not _POSITION.search(str(difference.emulator)):
        return "", ""
    return difference.simulator.partition("\n")[0], difference.emulator.partition("\n")[0]


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
_CONSTRAINTS = {"check", "unique index", "foreign key", "row referred to"}

ACCEPTED: tuple[Accepted, ...] = (
    Accepted("tag", "the emulator leaves transaction_tag empty", is_tag),
    Accepted(
        "pending timestamp",
        "the emulator writes the end of time for a commit timestamp",
        is_pending_timestamp,
    ),
    Accepted(
        "fraction",
        "the emulator drops the fraction of a TIMESTAMP in keys, new_values and old_values, and "
        "writes the year 1 without its zeros",
        is_without_fraction,
    ),
    Accepted(
        "infinity",
        "NaN and the infinities are strings in mods; the emulator writes null",
        is_infinite,
    ),
    Accepted(
        "replace",
        "a row that is replaced, or deleted and inserted anew, gives a DELETE and an INSERT; the "
        "emulator gives one INSERT",
        is_replaced,
    ),
    Accepted(
        "update of no tracked column",
        "gives no record; the emulator gives one under the two NEW_ROW types, and for DML",
        is_untracked_update,
    ),
    Accepted(
        "unmodified columns of DML",
        "an UPDATE tells the columns that it wrote; the emulator tells them all for DML",
        is_unmodified_column,
    ),
    Accepted(
        "back-fill",
        "a new column's default is written into the rows that are there; the emulator tells nobody",
        is_back_fill,
    ),
    Accepted(
        "null old_values",
        "an empty map is {}; the emulator writes null where no tracked column was written",
        is_null_map,
    ),
    Accepted(
        "split record",
        "changes of a row that came to nothing do not split a record; on the emulator they do",
        is_split_record,
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
        "table or column of the future",
        "a query in the past of what was made later tells its name, and not its place",
        _is_of_the_future,
    ),
    Accepted(
        "suspended FOR ALL",
        "a stream that watches nothing does not watch ALL; on the emulator it keeps the flag",
        _is_suspended_all,
    ),
    Accepted(
        "tables after DROP FOR ALL",
        "a stream that watches nothing watches no new table either; on the emulator it does",
        is_table_after_suspension,
    ),
    Accepted(
        "order of tracking streams",
        "by name, each once; on the emulator in no order that can be told, and twice after SET FOR",
        _is_order_of_names,
    ),
    Accepted(
        "update of a deleted row",
        "mutations apply in their order, so the row is missing: NOT_FOUND",
        _is_update_of_deleted,
    ),
    Accepted(
        "words: excerpt",
        "the whole line is quoted; the emulator quotes what is around the place",
        _is_excerpt,
    ),
    Accepted(
        "words: place",
        "a negative number and a row are told by their first token behind the sign or bracket",
        _is_place,
    ),
    Accepted(
        "words: type of a NULL",
        "a NULL in the place of the last argument has its type; the emulator has none for it",
        _words(
            r"(?P<start>No matching signature for READ_S for argument types: .*), ARRAY<STRING>, "
            r"NULL\.(?P<rest>.*)",
            r"(?P<start>No matching signature for READ_S for argument types: .*), NULL, "
            r"NULL\.(?P<rest>.*)",
        ),
    ),
    Accepted(
        "words: nothing selected",
        "SELECT alone is grammar to the simulator, and lacks what it selects",
        _words(
            r"Syntax error: SELECT list must not be empty \[at 1:1\].*",
            r"Syntax error: Unexpected end of statement \[at 1:7\].*",
        ),
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
    Accepted(
        "rows of an insert that ignores",
        "are the rows that were written; the emulator may return another one that was given",
        _is_ignored_return,
    ),
)


def accepted_by(difference: Difference) -> Accepted | None:
    """The first entry that accepts a difference."""
    return next((one for one in ACCEPTED if one.holds(difference)), None)
