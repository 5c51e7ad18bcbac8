"""Parts that are broken on purpose: the order modes of sinks, and sinks of a program's own."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.batch import effect_loop
from tidegate.spark_consumer.core import batch_run, sink_set
from tidegate.spark_consumer.core import hand_over as hand_over_module
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.hand_over import HandOver
from tidegate.spark_consumer.library import builder
from tidegate.spark_consumer.sinks import released_frame
from tidegate.spark_consumer.sinks.delta import changelog_by_key, key_merge, mirror_by_key
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink
from tidegate.spark_consumer.sinks.kafka.release_record import ReleaseRecord

__all__ = ["BROKEN_ORDERS"]

_LOOP = "tests/unit/spark_consumer/batch/test_effect_loop.py"
_CORE = "tests/unit/spark_consumer/core/test_hand_over.py"
_BUILDER = "tests/unit/spark_consumer/library/test_builder.py"
_TABLE = "tests/spark/sinks/delta/test_transactions_sink.py"
_TOPIC = "tests/unit/spark_consumer/sinks/kafka/test_ordered_topic.py"

_CHANGES = "tests/spark/sinks/delta/test_changelog_by_key.py"
_BY_KEY = "tests/spark/sinks/delta/test_mirror_by_key.py"
_SINK_SET = "tests/unit/spark_consumer/core/test_sink_set.py"

_execute, _rows = BatchRun._execute, hand_over_module._rows
_key_merge, _commit_of = mirror_by_key.key_merge, changelog_by_key.commit_of
_first_release = sink_set.first_release
_numbers = count(10)


def _hands_over_new_plans_only(self: Any, plan: Any) -> Any:
    if self._stored is not None:
        self._takers = ()
    return _execute(self, plan)


def _to_all_takers(plan: Any, takers: Any) -> Any:
    return (HandOver(tuple(takers), _rows(plan)),) if takers and _rows(plan) != 0 else ()


def _due_only(plan: Any) -> int:
    return int(plan.fresh.due_rows)


def _accepts(_rows: int, _effect: Any, *, batch: int) -> None:
    del batch


def _without_the_plan(sink: str, state: Any, _stored: Any) -> int | None:
    return _first_release(sink, state, None)


def _backwards(left: Any, right: Any) -> Any:
    return (right.getField("ordinal") - left.getField("ordinal")).cast("int")


def _takes_any_topic(self: Any, last: ReleaseRecord | None) -> None:
    if last is not None:
        self._holds_what = last.holds


def _is_newer_always(_column: str, _position: int) -> str:
    return "true"


def _newest_rows_only(**known: Any) -> Any:
    return replace(_key_merge(**known), is_newer="s.order_key > t.order_key")


def _nulls_for_absent(**known: Any) -> Any:
    whole = _key_merge(**known)
    return replace(whole, changed={**whole.changed, "`a`": whole.inserted["`a`"],
                                   "`b`": whole.inserted["`b`"]})  # fmt: skip


def _of_another_number(batch: Any, sink: str) -> Any:
    return replace(_commit_of(batch, sink), release=next(_numbers))


BROKEN_ORDERS = (
    UnitMutant(
        "a batch that is not handed over again after a kill",
        (f"{_LOOP}::test_a_batch_is_handed_over_once_more_after_a_kill_at_any_step",),
        ((BatchRun, "_execute", _hands_over_new_plans_only),),
    ),
    UnitMutant(
        "a sink that is handed a batch whose plan does not name it",
        (f"{_CORE}::test_a_sink_that_the_plan_does_not_name_waits_for_the_next",
         f"{_LOOP}::test_a_sink_that_joins_is_handed_the_batches_that_are_planned_with_it"),
        ((hand_over_module, "hand_over", _to_all_takers), (batch_run, "hand_over", _to_all_takers)),
    ),
    UnitMutant(
        "a batch of which only what is due is handed over",
        (f"{_CORE}::test_all_changes_of_a_batch_are_handed_over_whether_they_wait_or_are_late",),
        ((hand_over_module, "_rows", _due_only),),
    ),
    UnitMutant(
        "a hand-over of fewer changes than the plan has counted",
        (f"{_LOOP}::test_rows_that_the_plan_counted_and_the_batch_lacks_end_it_before_the_hand_over",),
        ((effect_loop, "require_handed", _accepts),),
    ),
    UnitMutant(
        "a mirror by key in which an older change wins",
        (f"{_BY_KEY}::test_an_older_change_neither_brings_a_deleted_row_back_nor_changes_a_newer_one",),
        ((key_merge, "_is_newer", _is_newer_always),),
    ),
    UnitMutant(
        "a mirror by key that takes no row which is older than an UPDATE of it",
        (f"{_BY_KEY}::test_a_row_that_was_read_on_demand_fills_what_newer_updates_did_not_capture",),
        ((mirror_by_key, "key_merge", _newest_rows_only),),
    ),
    UnitMutant(
        "a mirror by key that applies events of files by the times of their releases",
        (f"{_BY_KEY}::test_of_events_of_files_the_highest_order_wins_however_late_it_comes",),
        ((mirror_by_key, "with_source_order", lambda changes, _: changes),),
    ),
    UnitMutant(
        "a mirror by key whose absent columns become NULL",
        (f"{_BY_KEY}::test_the_newest_change_wins_and_only_what_was_captured_changes",),
        ((mirror_by_key, "key_merge", _nulls_for_absent),),
    ),
    UnitMutant(
        "a batch that has another number when it is repeated",
        (f"{_CHANGES}::test_a_batch_taken_twice_is_there_once_also_by_a_new_process",),
        ((changelog_by_key, "commit_of", _of_another_number),),
    ),
    UnitMutant(
        "a mirror by key that joins a query",
        (f"{_SINK_SET}::test_a_mirror_by_key_takes_part_from_the_first_batch_or_not_at_all",
         f"{_SINK_SET}::test_a_plan_that_was_stored_without_the_mirror_by_key_is_not_executed_with_it"),
        ((sink_set, "MIRROR_BY_KEY", "nothing"),),
    ),
    UnitMutant(
        "a sink that joins while the first batch is done again",
        (f"{_SINK_SET}::test_a_sink_joins_after_a_first_batch_that_was_planned_without_it",),
        ((sink_set, "first_release", _without_the_plan),),
    ),
    UnitMutant(
        "the changes of a transaction backwards",
        (f"{_TABLE}::test_a_transaction_is_a_row_with_its_changes_in_order_over_all_tables",),
        ((released_frame, "_by_ordinal", _backwards),),
    ),
    UnitMutant(
        "transactions in an ordered topic that has changes",
        (f"{_TOPIC}::test_a_topic_of_changes_gets_no_transactions",),
        ((OrderedTopicSink, "_require_own", _takes_any_topic),),
    ),
    UnitMutant(
        "a sink of a program that is not looked at",
        (f"{_BUILDER}::test_what_cannot_be_used_is_refused_before_anything_is_created",),
        ((builder, "named_sink", lambda sink: SimpleNamespace(name=repr(sink))),),
    ),
)  # fmt: skip
