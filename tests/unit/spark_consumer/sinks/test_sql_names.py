"""Names in SQL, and that no other module writes one."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.spark_consumer.sinks.delta.key_merge import key_merge
from tidegate.spark_consumer.sinks.delta.merge_clauses import merge_clauses
from tidegate.spark_consumer.sinks.sql_names import double_quoted, quoted, text_literal

ROOT = Path(__file__).resolve().parents[4]


def test_a_mark_in_a_name_is_doubled():
    assert quoted("a") == "`a`"
    assert quoted("a`b", "c.d", "`") == "`a``b`.`c.d`.````"
    assert double_quoted('a"b`') == '"a""b`"'


def test_a_mark_in_a_text_is_escaped():
    assert text_literal("it's \\") == r"'it\'s \\'"


def test_clauses_quote_every_name():
    names = ["i`d", "a`b", "c'd"]
    clauses = merge_clauses(columns=names, keys=["i`d"], existing=[*names, "old`"])
    assert clauses.same_key == "t.`i``d` <=> s.key.`i``d`"
    assert list(clauses.changed) == ["`a``b`", "`c'd`"]
    assert clauses.changed["`a``b`"].endswith("ELSE t.`a``b` END")
    assert list(clauses.inserted) == ["`i``d`", "`a``b`", "`c'd`", "`old```"]
    by_key = key_merge(columns=names, keys=["i`d"], existing=[*names, "old`"])
    assert by_key.same_key == "t.`i``d` <=> s.key.`i``d`"
    assert "ELSE t.`a``b` END" in by_key.changed["`a``b`"]
    assert "THEN t.`old``` END" in by_key.changed["`old```"]
    assert r"'c\'d'" in by_key.changed["`column_updates`"]


def test_no_other_module_quotes_a_name():
    """A name between marks of an f-string ends at a mark of its own."""
    found = []
    for path in sorted((ROOT / "spark_consumer").rglob("*.py")):
        if path.name != "sql_names.py":
            marked = re.findall(r"`\{[^}]*\}`|[ts]\.\"\{", path.read_text())
            found += [f"{path.relative_to(ROOT)}: {one}" for one in marked]
    assert found == []
