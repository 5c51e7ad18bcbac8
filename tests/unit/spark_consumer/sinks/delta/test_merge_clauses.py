"""The clauses of a MERGE, as text."""

from __future__ import annotations

from tidegate.spark_consumer.sinks.delta.merge_clauses import merge_clauses


def test_a_column_is_patched_where_it_was_captured_and_inserted_as_it_was_folded():
    clauses = merge_clauses(columns=["id", "a"], keys=["id"])
    assert clauses.same_key == "t.`id` <=> s.key.`id`"
    assert clauses.changed == {"`a`": "CASE WHEN s.captured_1 THEN s.value_1 ELSE t.`a` END"}
    assert clauses.inserted == {"`id`": "s.value_0", "`a`": "s.value_1"}


def test_a_table_of_key_columns_assigns_one_all_the_same():
    clauses = merge_clauses(columns=["id", "k"], keys=["id", "k"])
    assert list(clauses.changed) == ["`id`", "`k`"]
    assert clauses.same_key == "t.`id` <=> s.key.`id` AND t.`k` <=> s.key.`k`"


def test_a_column_that_the_fold_lacks_is_null_in_a_new_row_and_else_left():
    clauses = merge_clauses(columns=["id", "a"], keys=["id"], existing=["ID", "a", "gone"])
    assert clauses.inserted == {"`id`": "s.value_0", "`a`": "s.value_1", "`gone`": "NULL"}
    assert "`gone`" not in clauses.changed


def test_the_statement_deletes_before_it_updates():
    text = merge_clauses(columns=["id", "a"], keys=["id"]).sql("`c`.`t`", "folded")
    assert text.startswith("MERGE INTO `c`.`t` t USING folded s ON t.`id` <=> s.key.`id` ")
    assert (
        text.index("DELETE") < text.index("UPDATE SET t.`a` = ") < text.index("INSERT (`id`, `a`)")
    )


def test_a_table_that_a_column_orders_changes_for_a_higher_value_only():
    clauses = merge_clauses(columns=["id", "a", "_datastream_order"], keys=["id"])
    newer = "s.captured_1 AND s.value_2 > t.`_datastream_order`"
    assert clauses.changed["`a`"] == f"CASE WHEN {newer} THEN s.value_1 ELSE t.`a` END"
