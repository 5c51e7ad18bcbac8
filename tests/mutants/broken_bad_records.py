"""Parts that are broken on purpose: what becomes of records that are no changes."""

from __future__ import annotations

import itertools
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.mutants.mutant import UnitMutant
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.batch import handed_rows, schema_ids
from tidegate.spark_consumer.core.release_check import ReleaseCheck
from tidegate.spark_consumer.sinks.delta import dead_letters

__all__ = ["BROKEN_BAD_RECORDS"]

_IDS = "tests/unit/spark_consumer/batch/test_schema_ids.py"
_TABLE = "tests/spark/sinks/delta/test_dead_letters.py"
_HANDED = "tests/spark/batch/test_handed_rows.py"
_CHECK = "tests/unit/spark_consumer/core/test_release_check.py"

_append_once = dead_letters.append_once
_numbers = itertools.count()


def _append_each_time(*args: Any, application: str, **named: Any) -> int:
    return _append_once(*args, application=f"{application}/{next(_numbers)}", **named)


class _AnyName:
    """Equal to every name."""

    __hash__ = None  # type: ignore[assignment]  # no set or dict holds it

    def __eq__(self, _other: object) -> bool:
        return True


def _any_names(_topic: str) -> dict[str, _AnyName]:
    return {"key": _AnyName(), "value": _AnyName()}


_settle = ReleaseCheck.settle


def _excuse(self: ReleaseCheck, step: Any, plan: Any, *, may_be_parked: bool) -> Any:
    """Release what is wrong, as `on_mismatch = "record"` does, once something was set aside."""
    if self._all_dead_letters:
        self._judge._records = self._origins._records = True
    return _settle(self, step, plan, may_be_parked=may_be_parked)


def _every_row(*_: Any) -> Any:
    return F.lit(True)


BROKEN_BAD_RECORDS = (
    UnitMutant(
        "a dead letter that is stored again when its batch is repeated",
        (f"{_TABLE}::test_records_are_kept_once_by_batch_and_by_release_as_they_stand_in_kafka",),
        ((dead_letters, "append_once", _append_each_time),),
    ),
    UnitMutant(
        "the schema of another topic in a plan",
        (f"{_IDS}::test_where_it_is_set_aside_none_of_its_ids_enters_the_plan",),
        ((schema_ids, "record_names", _any_names),),
    ),
    UnitMutant(
        "a registry that fails taken for one that does not know a schema",
        (f"{_IDS}::test_a_registry_that_gives_no_answer_makes_no_record_a_dead_letter",),
        ((schema_ids, "SchemaNotFound", SchemaError),),
    ),
    *(
        UnitMutant(
            f"a batch that is handed over with records that {fault}",
            (
                f"{_HANDED}::test_records_that_are_no_changes_are_set_aside_and_the_others_handed_over",
            ),
            ((handed_rows, condition, _every_row),),
        )
        for fault, condition in (
            ("have no order key", "has_order_key"),
            ("cannot be decoded", "is_readable"),
        )
    ),
    UnitMutant(
        "a release that dead letters excuse",
        (
            f"{_CHECK}::test_a_change_among_the_dead_letters_is_missing_at_its_marker_and_the_error_says_so",
            f"{_CHECK}::test_what_may_be_parked_excuses_the_transaction_and_not_the_marker",
        ),
        ((ReleaseCheck, "settle", _excuse),),
    ),
)
