"""Parts that are broken on purpose: in which sessions a query writes, and what its tables tell."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.spark import query_session, short_failure
from tidegate.spark_consumer.spark.query_session import QuerySession

__all__ = ["BROKEN_SESSIONS"]

_SESSIONS = "tests/unit/spark_consumer/spark/test_query_session.py"
_COMMITS = "tests/unit/spark_consumer/sinks/delta/test_commit_log.py"
_FAILURES = "tests/unit/spark_consumer/spark/test_short_failure.py"


def _leave_settings(_spark: Any) -> dict[str, str | None]:
    return {}


def _for_every_sink(_self: QuerySession, _sink: Any) -> Any:
    return nullcontext()


def _as_at_the_start(_self: QuerySession, _batches: Any) -> None:
    return None


def _nothing_without_a_commit(_self: CommitLog, _release: int) -> None:
    return None


def _never_carried(_self: CommitLog, _release: int) -> bool:
    return True


def _only_our_number(log: CommitLog) -> int | None:
    return log._history.numbers(log._sink).get(log._query_id)


def _whole(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


BROKEN_SESSIONS = (
    UnitMutant(
        "a program's settings in the sessions that a query writes in",
        (f"{_SESSIONS}::test_what_changes_stored_values_is_set_in_copies_only",),
        ((query_session, "_set_stored_as", _leave_settings),),
    ),
    UnitMutant(
        "a query's settings in a program's function",
        (f"{_SESSIONS}::test_batches_have_the_settings_and_the_programs_sinks_get_theirs_back",),
        ((QuerySession, "settings_of", _for_every_sink),),
    ),
    UnitMutant(
        "a program's later settings kept from the sessions that a query writes in",
        (
            f"{_SESSIONS}::test_what_the_program_changes_after_the_start_reaches_both_copies_unless_it_is_pinned",
        ),
        ((QuerySession, "_follow", _as_at_the_start),),
    ),
    UnitMutant(
        "a table without changes that is nothing without its commits",
        (f"{_COMMITS}::test_an_idle_table_whose_log_was_cleaned_keeps_its_release",),
        ((CommitLog, "_version_without_commit", _nothing_without_a_commit),),
    ),
    UnitMutant(
        "a release written again because its commit was deleted",
        (f"{_COMMITS}::test_an_idle_table_whose_log_was_cleaned_keeps_its_release",),
        ((CommitLog, "knows_after", _never_carried),),
    ),
    UnitMutant(
        "a copy of another query's table, of which only its note is left",
        (f"{_COMMITS}::test_a_copy_of_another_querys_table_is_refused_when_its_commits_are_gone",),
        ((CommitLog, "_newest_number", _only_our_number),),
    ),
    UnitMutant(
        "the whole text of an error that reaches Spark",
        (f"{_FAILURES}::test_of_any_other_error_spark_gets_the_class_and_the_beginning",),
        ((short_failure, "_short", _whole),),
    ),
)
