"""Parts that are broken on purpose: how long an answer of Kafka or the registry holds."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.translation import refreshing
from tidegate.producer.translation.fresh_answers import FreshAnswers

__all__ = ["BROKEN_FRESHNESS"]

_LIMITED = "tests/unit/producer/translation/test_limited.py"
_REFRESHING = "tests/unit/producer/translation/test_refreshing.py"
_TOO_LARGE = f"{_LIMITED}::test_many_changes_that_are_too_large_read_the_limits_once"
_REFUSED = f"{_REFRESHING}::test_a_table_that_the_registry_refuses_is_asked_for_once"


def _none(self: Any, question: Any) -> None:
    """Ask for each change."""


def _whatever_its_age(self: Any, question: Any) -> Any:
    found = self._answers.get(question)
    return None if found is None else found[1]


def _the_table(record: Any, change: Any) -> tuple[object, ...]:
    return (record.table_name,)


BROKEN_FRESHNESS = (
    UnitMutant(
        "limits and refused tables asked for with each change",
        (f"{_TOO_LARGE}_in_some_seconds", f"{_REFUSED}_in_some_seconds"),
        ((FreshAnswers, "get", _none),),
    ),
    UnitMutant(
        "limits and refusals that are never asked for again",
        (
            f"{_LIMITED}::test_a_limit_that_is_raised_is_seen_after_some_seconds",
            f"{_REFRESHING}::test_a_registry_that_is_repaired_is_seen_after_some_seconds",
        ),
        ((FreshAnswers, "get", _whatever_its_age),),
    ),
    UnitMutant(
        "a refusal for some columns taken for one of the whole table",
        (f"{_REFRESHING}::test_a_refusal_is_of_the_columns_that_the_record_shows",),
        ((refreshing, "_question", _the_table),),
    ),
)
