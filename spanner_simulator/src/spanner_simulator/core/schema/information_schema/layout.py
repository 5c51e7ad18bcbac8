"""The columns of each view, in the order of the service, from the emulator's list.

A name with `#` is an INT64, with `!` a boolean (YES or NO in PostgreSQL), otherwise it is a text.
PostgreSQL has more columns than GoogleSQL in some views; those that Spanner does not use are NULL,
as documented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spanner_simulator.core.values import Dialect

Kind = Literal["TEXT", "INT64", "BOOL"]

_TABLE = "table_catalog table_schema table_name "
_CONSTRAINT = "constraint_catalog constraint_schema constraint_name "
_STREAM = "change_stream_catalog change_stream_schema change_stream_name "
_OPTION = "option_name option_type option_value"
_SHARED = {
    "change_streams": _STREAM + "all!",
    "change_stream_tables": _STREAM + _TABLE + "all_columns!",
    "change_stream_columns": _STREAM + _TABLE + "column_name",
    "change_stream_options": _STREAM + _OPTION,
    "database_options": "catalog_name schema_name " + _OPTION,
    "index_columns": (
        _TABLE + "index_name index_type column_name ordinal_position# column_ordering "
        "is_nullable spanner_type"
    ),
    "key_column_usage": (
        _CONSTRAINT + _TABLE + "column_name ordinal_position# position_in_unique_constraint#"
    ),
    # There are no foreign keys, but drivers query these views.
    "referential_constraints": (
        _CONSTRAINT + "unique_constraint_catalog unique_constraint_schema "
        "unique_constraint_name match_option update_rule delete_rule spanner_state"
    ),
    "table_constraints": (
        _CONSTRAINT + _TABLE + "constraint_type is_deferrable initially_deferred enforced"
    ),
}
_GOOGLE = {
    "column_options": _TABLE + "column_name " + _OPTION,
    "columns": (
        _TABLE + "column_name ordinal_position# column_default data_type is_nullable "
        "spanner_type is_generated generation_expression is_stored is_hidden! spanner_state "
        "is_identity identity_generation identity_kind identity_start_with_counter "
        "identity_skip_range_min identity_skip_range_max on_update_expression"
    ),
    "indexes": (
        _TABLE + "index_name index_type parent_table_name is_unique! is_null_filtered! "
        "index_state spanner_is_managed!"
    ),
    "schemata": "catalog_name schema_name effective_timestamp# schema_owner",
    "tables": (
        _TABLE + "parent_table_name on_delete_action table_type spanner_state interleave_type "
        "row_deletion_policy_expression"
    ),
}
_POSTGRES = {
    "column_options": _TABLE + "column_name option_name option_value option_type",
    "columns": (
        _TABLE + "column_name ordinal_position# column_default is_nullable data_type "
        "character_maximum_length# character_octet_length# numeric_precision# "
        "numeric_precision_radix# numeric_scale# datetime_precision# interval_type "
        "interval_precision# character_set_catalog character_set_schema character_set_name "
        "collation_catalog collation_schema collation_name domain_catalog domain_schema "
        "domain_name udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name "
        "maximum_cardinality# dtd_identifier is_self_referencing is_identity "
        "identity_generation identity_start identity_increment identity_maximum "
        "identity_minimum identity_cycle identity_kind identity_start_with_counter "
        "identity_skip_range_min identity_skip_range_max is_generated generation_expression "
        "is_updatable spanner_type is_stored spanner_state is_hidden! on_update_expression"
    ),
    "indexes": (
        _TABLE + "index_name index_type parent_table_name is_unique! is_null_filtered! "
        "index_state spanner_is_managed! filter"
    ),
    "schemata": (
        "catalog_name schema_name schema_owner default_character_set_catalog "
        "default_character_set_schema default_character_set_name sql_path effective_timestamp#"
    ),
    "tables": (
        _TABLE + "table_type self_referencing_column_name reference_generation "
        "user_defined_type_catalog user_defined_type_schema user_defined_type_name "
        "is_insertable_into is_typed commit_action parent_table_name on_delete_action "
        "spanner_state interleave_type row_deletion_policy_expression"
    ),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view; the name is lower case in both dialects."""

    name: str
    kind: Kind


def _column(word: str) -> Column:
    kind: Kind = "INT64" if "#" in word else "BOOL" if "!" in word else "TEXT"
    return Column(word.rstrip("#!"), kind)


def _layout(views_of_dialect: dict[str, str]) -> dict[str, tuple[Column, ...]]:
    views = {**_SHARED, **views_of_dialect}
    return {name: tuple(_column(word) for word in views[name].split()) for name in sorted(views)}


_LAYOUTS = {
    "GOOGLE_STANDARD_SQL": _layout(_GOOGLE),
    "POSTGRESQL": _layout(_POSTGRES),
}


def view_names(dialect: Dialect) -> tuple[str, ...]:
    """All views of a dialect, in lower case."""
    return tuple(_LAYOUTS[dialect])


def columns_of(dialect: Dialect, view: str) -> tuple[Column, ...] | None:
    """The columns of a view, or None if the view does not exist."""
    return _LAYOUTS[dialect].get(view.lower())
