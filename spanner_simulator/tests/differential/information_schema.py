"""What a workload asks INFORMATION_SCHEMA: the views that readers and their tools look at.

Columns are named one by one: the emulator and the service disagree on what else a view has.
"""

from __future__ import annotations

from differential.kinds import GOOGLE, Dialect
from differential.steps import Query

_VIEWS = {
    "schemata": "schema_name",
    "tables": "table_name, parent_table_name, on_delete_action, table_type, spanner_state",
    "columns": "table_name, column_name, ordinal_position, is_nullable, spanner_type, "
    "column_default, is_generated, generation_expression, is_stored",
    "column_options": "table_name, column_name, option_name, option_type, option_value",
    "indexes": "table_name, index_name, index_type, parent_table_name, is_unique, "
    "is_null_filtered, index_state",
    "index_columns": "table_name, index_name, index_type, column_name, ordinal_position, "
    "column_ordering, is_nullable, spanner_type",
    "key_column_usage": "constraint_name, table_name, column_name, ordinal_position",
    "table_constraints": "constraint_name, table_name, constraint_type, is_deferrable, enforced",
    "referential_constraints": "constraint_name, unique_constraint_name, match_option, "
    "update_rule, delete_rule",
    "constraint_column_usage": "table_name, column_name, constraint_name",
    "check_constraints": "constraint_name, check_clause, spanner_state",
    "views": "table_name, view_definition",
    "change_streams": "change_stream_name, {all}",
    "change_stream_tables": "change_stream_name, table_name, all_columns",
    "change_stream_columns": "change_stream_name, table_name, column_name",
    "change_stream_options": "change_stream_name, option_name, option_type, option_value",
}
_SCHEMA_OF = {
    "schemata": "schema_name",
    "key_column_usage": "constraint_schema",
    "referential_constraints": "constraint_schema",
    "check_constraints": "constraint_schema",
    "change_streams": "change_stream_schema",
    "change_stream_tables": "change_stream_schema",
    "change_stream_columns": "change_stream_schema",
    "change_stream_options": "change_stream_schema",
}


def information_schema_queries(dialect: Dialect) -> list[Query]:
    """One query for each view, of the default schema."""
    schema, word = ("", "`ALL`") if dialect == GOOGLE else ("public", '"all"')
    made = []
    for view, columns in _VIEWS.items():
        # The columns of views are told by the emulator alone, and with types of no length.
        tables = " AND LOWER(table_name) LIKE 'tab%'" if view == "columns" else ""
        where = f" WHERE {_SCHEMA_OF.get(view, 'table_schema')} = '{schema}'"
        text = f"SELECT {columns.format(all=word)} FROM information_schema.{view}"
        made.append(Query(text + where + tables, {}))
    made.append(
        Query(
            "SELECT option_value FROM information_schema.database_options "
            "WHERE option_name = 'database_dialect'",
            {},
        )
    )
    return made
