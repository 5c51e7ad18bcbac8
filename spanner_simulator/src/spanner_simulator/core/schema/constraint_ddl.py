"""What both dialects write alike inside CREATE TABLE and ALTER TABLE: constraints.

An unnamed constraint gets its name when it is applied, because the name holds the table's.
"""

from __future__ import annotations

from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.schema.definitions import Check, ForeignKey, OnDelete
from spanner_simulator.errors import Code, SpannerError


def starts_constraint(words: DdlWords) -> bool:
    """Whether a table constraint stands here, rather than a column of such a name."""
    first, second = words.peek(), words.peek(1)
    if first.is_keyword("CONSTRAINT"):
        return second.kind in ("name", "quoted_name") and words.peek(2).is_keyword(
            "FOREIGN", "CHECK", "PRIMARY", "UNIQUE", "EXCLUDE"
        )
    if first.is_keyword("FOREIGN"):
        return second.is_keyword("KEY")
    return first.is_keyword("CHECK") and second.is_symbol("(")


def constraint(words: DdlWords, name: str | None) -> ForeignKey | Check:
    """FOREIGN KEY or CHECK, after CONSTRAINT and its name."""
    if words.accept("CHECK"):
        expression = words.expression_in_brackets()
        if words.accept("NOT", "VALID") or words.accept("NO", "INHERIT"):
            words.encountered("constraint")
        return Check(name or "", expression, name is not None)
    words.expect("FOREIGN", "KEY")
    return foreign_key_target(words, name, words.names_in_brackets())


def foreign_key_target(words: DdlWords, name: str | None, columns: tuple[str, ...]) -> ForeignKey:
    """REFERENCES and what follows."""
    words.expect("REFERENCES")
    table = words.object_name()
    referenced: tuple[str, ...] = ()
    if words.peek().is_symbol("(") or words.dialect == "GOOGLE_STANDARD_SQL":
        referenced = words.names_in_brackets()
    action: OnDelete = "NO ACTION"
    while words.accept("ON"):
        if words.accept("UPDATE"):
            words.expect("NO", "ACTION")
        else:
            words.expect("DELETE")
            action = on_delete(words)
    is_enforced = not words.accept("NOT", "ENFORCED")
    if is_enforced:
        words.accept("ENFORCED")
    elif action == "CASCADE":
        raise SpannerError(
            Code.INVALID_ARGUMENT, "ON DELETE CASCADE is not supported with NOT ENFORCED."
        )
    return ForeignKey(name or "", columns, table, referenced, action, is_enforced, name is not None)


def on_delete(words: DdlWords) -> OnDelete:
    """CASCADE or NO ACTION, after ON DELETE."""
    if words.accept("CASCADE"):
        return "CASCADE"
    words.expect("NO", "ACTION")
    return "NO ACTION"
