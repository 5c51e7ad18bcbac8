"""Faults of rows, in the service's words (which the simulator uses) and in the emulator's.

Groups of one name say the same on both sides.
"""

from __future__ import annotations

# A name, the service's words, the emulator's words.
FAULT_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "row exists",
        r"Row \[.*\] in table (?P<table>\w+) already exists",
        r"Table (?P<table>\w+): Row \{.*\} already exists\.",
    ),
    (
        "row exists, by DML",
        r"Row \[.*\] in table \w+ already exists",
        (
            r"Failed to insert row with primary key \(\{.*\}\) due to previously "
            r"(existing|inserted) row"
        ),
    ),
    (
        "row met twice",
        r"Cannot affect a row second time for key: \[.*\]",
        r"Cannot affect a row second time for key: \{.*\}",
    ),
    (
        "unique index over rows that are there",
        r"Found uniqueness violation on index (?P<index>\w+),  duplicate key: \[.*\]",
        r"Found uniqueness violation on index (?P<index>\w+),  duplicate key: \{.*\}↓?",
    ),
    (
        "row missing",
        r"Row \[.*\] in table (?P<table>\w+) is missing\. Row cannot be updated\.",
        r"Table (?P<table>\w+): Row \{.*\} not found\.",
    ),
    (
        "parent missing",
        r"Parent row for row \[.*\] in table (?P<child>\w+) is missing\. Row cannot be written\.",
        (
            r"Insert failed because key was not found in parent table:  Parent Table: \w+  "
            r"Child Table: (?P<child>\w+)  Key: \{.*\}"
        ),
    ),
    (
        "child found",
        (
            r"Integrity constraint violation during DELETE/REPLACE\. Found child "
            r"row \[.*\] in table "
            r"(?P<child>\w+)\."
        ),
        (
            r"Delete failed because one or more keys exist within the child "
            r"table:  Parent Table: \w+  "
            r"Child Table: (?P<child>\w+)  Key: \{.*\}"
        ),
    ),
    (
        "unique index",
        (
            r"Unique index violation on index (?P<index>\w+) at index key "
            r"\[.*\]\. It conflicts with "
            r"row \[.*\] in table \w+\."
        ),
        r"UNIQUE violation on index (?P<index>\w+),  duplicate key: \{.*\} in this transaction\.",
    ),
    (
        "foreign key",
        (
            r"Foreign key constraint `(?P<name>\w+)` is violated on table `(?P<table>\w+)`\. "
            r"Cannot find referenced values in (?P<to>\w+)\(.*\)\."
        ),
        (
            r"Foreign key `(?P<name>\w+)` constraint violation on table `(?P<table>\w+)`\. Cannot "
            r"find referenced key `\{.*\}` in table `(?P<to>\w+)`\."
        ),
    ),
    (
        "row referred to",
        (
            r"Foreign key constraint violation when deleting or updating referenced row\(s\): "
            r"referencing row\(s\) found in table `(?P<table>\w+)`\. Foreign key: `(?P<name>\w+)`\."
        ),
        (
            r"Foreign key `(?P<name>\w+)` constraint violation when deleting or updating "
            r"referenced key `\{.*\}` in table `\w+`\. A row with that key exists in the "
            r"referencing table `(?P<table>\w+)`\."
        ),
    ),
    (
        "check",
        r"Check constraint `(?P<table>\w+)`\.`(?P<name>\w+)` is violated for key \(.*\)",
        r"Check constraint `(?P<table>\w+)`\.`(?P<name>\w+)` is violated for key \{.*\}↓?",
    ),
    (
        "NULL in NOT NULL",
        r"\w+ must not be NULL in table (?P<table>\w+)\.",
        (
            r"A new row in table (?P<table>\w+) does not specify a non-null value "
            r"for NOT NULL column: "
            r"\w+|Cannot specify a null value for column: [\w.]+ in table: \w+"
        ),
    ),
    (
        "missing key column",
        r"(?P<table>\w+) must specify a value for the key column (?P<column>\w+)\.",
        (
            r"A new row in table (?P<table>\w+) does not specify a non-null value "
            r"for NOT NULL column: "
            r"(?P<column>\w+)"
        ),
    ),
)
