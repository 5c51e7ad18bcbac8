"""Parts that are broken on purpose: columns and tables that cannot be published."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.commands import parts
from tidegate.producer.translation import table_evolution
from tidegate.producer.translation.table_registrar import TableRegistrar

__all__ = ["BROKEN_COLUMNS"]

_REFRESHING = "tests/unit/producer/translation/test_refreshing.py"
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


BROKEN_COLUMNS = (
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
