"""Parts that are broken on purpose: columns and tables that cannot be published."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.commands import parts
from tidegate.producer.translation import table_evolution, table_registrar
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas import topic_collisions
from tidegate.schemas.change_schema import row_fields
from tidegate.spark_consumer.checkpoint import schema_store
from tidegate.spark_consumer.core import topic_schemas

__all__ = ["BROKEN_COLUMNS"]

_REFRESHING = "tests/unit/producer/translation/test_refreshing.py"
_ALIKE = (
    "tests/unit/spark_consumer/core/test_topic_schemas.py"
    "::test_columns_that_differ_in_case_only_are_refused_by_name"
)
_ALIKE_TABLES = (
    "tests/unit/spark_consumer/checkpoint/test_schema_store.py"
    "::test_tables_whose_names_differ_in_case_only_are_refused_by_name"
)
_BEGUN = (
    "tests/unit/producer/translation/test_parking.py"
    "::test_a_stream_that_has_begun_goes_on_without_what_cannot_be_published"
)


def _all_columns(_self: TableRegistrar, _topic: str, table: Any, _shown: Any) -> Any:
    """Want a field for each column, whether a record shows it or not."""
    return table


def _of_the_catalogue(base: Any, _others: Any) -> Any:
    """Take no type from a record."""
    return base


def _as_a_new_stream(registrar: Any, table: Any, *, has_begun: bool) -> Any:
    return registrar.register(table)


def _spelled_as_they_are(table: Any, _names: Any) -> Any:
    return table


def _own_names(_self: TableRegistrar, _table: Any, versions: Any) -> list[str]:
    """Look at no other topic."""
    return [name for one in versions for name in row_fields(one.schema)]


def _as_written(wanted: Any, existing: Any) -> dict[str, str]:
    return {}


def _no_names_alike(_names: Any) -> list[str]:
    return []


BROKEN_COLUMNS = (
    UnitMutant(
        "a column of another case gets a field of its own",
        (
            f"{_REFRESHING}::test_a_column_that_comes_back_in_another_case_is_the_same_column",
            f"{_REFRESHING}::test_the_rows_beside_a_table_have_its_columns_names",
        ),
        ((table_registrar, "_spelled", _spelled_as_they_are),),
    ),
    UnitMutant(
        "a topic beside a table has names of its own",
        (f"{_REFRESHING}::test_the_rows_beside_a_table_have_its_columns_names",),
        ((TableRegistrar, "_names", _own_names),),
    ),
    UnitMutant(
        "topics that differ in case only are two",
        ("tests/unit/schemas/test_topic_collisions.py::test_upper_and_lower_case_are_one",),
        ((topic_collisions, "topics_of_one_name", _as_written),),
    ),
    UnitMutant(
        "a reader takes names that differ in case only",
        (_ALIKE, _ALIKE_TABLES),
        (
            (topic_schemas, "names_of_one", _no_names_alike),
            (schema_store, "names_of_one", _no_names_alike),
        ),
    ),
    UnitMutant(
        "a column of an unknown type stops its whole table",
        (
            f"{_REFRESHING}::test_a_column_of_an_unknown_type_concerns_only_the_records_that_show_it",
            _BEGUN,
        ),
        ((TableRegistrar, "_with_fields", _all_columns),),
    ),
    UnitMutant(
        "a type that only the catalogue's notation decides",
        (
            f"{_REFRESHING}::test_a_key_column_of_an_unknown_notation_has_the_type_that_records_show",
        ),
        ((table_evolution, "_with_known_types", _of_the_catalogue),),
    ),
    UnitMutant(
        "a table that came later keeps a worker from starting",
        (_BEGUN,),
        ((parts, "_register", _as_a_new_stream),),
    ),
)
