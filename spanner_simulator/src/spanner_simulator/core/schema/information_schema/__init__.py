"""INFORMATION_SCHEMA: the catalogue as tables of rows, in the words of either dialect.

Each module makes the rows of some views, always in GoogleSQL's words; `view` alone knows how a
dialect writes them (upper case or lower, '' or 'public', booleans or 'YES' and 'NO').
"""

from spanner_simulator.core.schema.information_schema.view import (
    information_schema_names,
    information_schema_table,
)

__all__ = ["information_schema_names", "information_schema_table"]
