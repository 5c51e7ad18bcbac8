"""The columns of each view, in order: what the service shows, as the emulator lists it.

A name with `?` may be NULL, `#` is an INT64, `!` a boolean (YES or NO in PostgreSQL), otherwise it
is a text. PostgreSQL has more columns than GoogleSQL in some views; those that Spanner does not
use are NULL, as documented.
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
_ROUTINE = (
    "specific_catalog specific_schema specific_name routine_catalog routine_schema routine_name "
)
_SHARED = {
    "change_streams": _STREAM + "all!",
    "change_stream_tables": _STREAM + _TABLE + "all_columns!",
    "change_stream_columns": _STREAM + _TABLE + "column_name",
    "change_stream_options": _STREAM + _OPTION,
    "change_stream_privileges": "grantor? grantee " + _STREAM + "privilege_type is_grantable",
    "check_constraints": _CONSTRAINT + "check_clause spanner_state",
    "column_column_usage": _TABLE + "column_name dependent_column",
    "column_privileges": "grantor? grantee " + _TABLE + "column_name privilege_type is_grantable",
    "constraint_column_usage": _TABLE + "column_name " + _CONSTRAINT,
    "constraint_table_usage": _TABLE + _CONSTRAINT,
    "database_options": "catalog_name schema_name " + _OPTION,
    "enabled_roles": "role_name spanner_is_system!",
    "index_columns": (
        _TABLE + "index_name index_type column_name ordinal_position#? column_ordering? "
        "is_nullable? spanner_type?"
    ),
    "key_column_usage": (
        _CONSTRAINT + _TABLE + "column_name ordinal_position# position_in_unique_constraint#?"
    ),
    "referential_constraints": (
        _CONSTRAINT + "unique_constraint_catalog? unique_constraint_schema? "
        "unique_constraint_name? match_option update_rule delete_rule spanner_state"
    ),
    "role_change_stream_grants": ("grantor? grantee " + _STREAM + "privilege_type is_grantable"),
    "role_grantees": "grantee role_name is_grantable",
    "role_routine_grants": "grantor? grantee " + _ROUTINE + "privilege_type is_grantable",
    "role_table_grants": "grantor? grantee " + _TABLE + "privilege_type is_grantable",
    "roles": "role_name spanner_is_system!",
    "routine_privileges": "grantor? grantee " + _ROUTINE + "privilege_type is_grantable",
    "routines": _ROUTINE + "routine_type data_type? routine_body routine_definition? security_type",
    "parameters": (
        "specific_catalog specific_schema specific_name ordinal_position# parameter_name data_type "
        "parameter_default?"
    ),
    "spanner_statistics": "catalog_name schema_name package_name allow_gc!",
    "table_constraints": (
        _CONSTRAINT + _TABLE + "constraint_type is_deferrable initially_deferred enforced"
    ),
    "table_privileges": "grantor? grantee " + _TABLE + "privilege_type is_grantable",
}
_GOOGLE = {
    "column_options": _TABLE + "column_name " + _OPTION,
    "columns": (
        _TABLE + "column_name ordinal_position# column_default? data_type? is_nullable? "
        "spanner_type? is_generated generation_expression? is_stored? spanner_state? is_identity? "
        "identity_generation? identity_kind? identity_start_with_counter? "
        "identity_skip_range_min? identity_skip_range_max?"
    ),
    "indexes": (
        _TABLE + "index_name index_type parent_table_name is_unique! is_null_filtered! "
        "index_state? spanner_is_managed!"
    ),
    "schemata": "catalog_name schema_name effective_timestamp#? schema_owner?",
    "sequences": "catalog schema name data_type",
    "sequence_options": "catalog schema name " + _OPTION,
    "tables": (
        _TABLE + "parent_table_name? on_delete_action? table_type spanner_state? interleave_type? "
        "row_deletion_policy_expression?"
    ),
    "views": _TABLE + "view_definition? security_type",
}
_POSTGRES = {
    "column_options": _TABLE + "column_name option_name option_value option_type",
    "columns": (
        _TABLE + "column_name ordinal_position# column_default? is_nullable? data_type? "
        "character_maximum_length#? character_octet_length#? numeric_precision#? "
        "numeric_precision_radix#? numeric_scale#? datetime_precision#? interval_type? "
        "interval_precision#? character_set_catalog? character_set_schema? character_set_name? "
        "collation_catalog? collation_schema? collation_name? domain_catalog? domain_schema? "
        "domain_name? udt_catalog? udt_schema? udt_name? scope_catalog? scope_schema? scope_name? "
        "maximum_cardinality#? dtd_identifier? is_self_referencing? is_identity? "
        "identity_generation? identity_start? identity_increment? identity_maximum? "
        "identity_minimum? identity_cycle? identity_kind? identity_start_with_counter? "
        "identity_skip_range_min? identity_skip_range_max? is_generated generation_expression? "
        "is_updatable? spanner_type? is_stored? spanner_state?"
    ),
    "indexes": (
        _TABLE + "index_name index_type parent_table_name is_unique! is_null_filtered! "
        "index_state? spanner_is_managed! filter?"
    ),
    "information_schema_catalog_name": "catalog_name",
    "schemata": (
        "catalog_name schema_name schema_owner? default_character_set_catalog? "
        "default_character_set_schema? default_character_set_name? sql_path? effective_timestamp#?"
    ),
    "sequences": (
        "sequence_catalog sequence_schema sequence_name data_type numeric_precision#? "
        "numeric_precision_radix#? numeric_scale#? start_value#? minimum_value#? maximum_value#? "
        "increment#? cycle_option sequence_kind counter_start_value#? skip_range_min#? "
        "skip_range_max#?"
    ),
    "tables": (
        _TABLE + "table_type self_referencing_column_name? reference_generation? "
        "user_defined_type_catalog? user_defined_type_schema? user_defined_type_name? "
        "is_insertable_into? is_typed? commit_action? parent_table_name? on_delete_action? "
        "spanner_state? interleave_type? row_deletion_policy_expression?"
    ),
    "views": (
        _TABLE + "view_definition? check_option? is_updatable? is_insertable_into? "
        "is_trigger_updatable? is_trigger_deletable? is_trigger_insertable_into? security_type?"
    ),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view; the name is lower case in both dialects."""

    name: str
    kind: Kind
    is_nullable: bool


def _column(word: str) -> Column:
    kind: Kind = "INT64" if "#" in word else "BOOL" if "!" in word else "TEXT"
    return Column(word.rstrip("?#!"), kind, "?" in word)


def _layout(own: dict[str, str]) -> dict[str, tuple[Column, ...]]:
    views = {**_SHARED, **own}
    return {name: tuple(_column(word) for word in views[name].split()) for name in sorted(views)}


_LAYOUTS = {
    "GOOGLE_STANDARD_SQL": _layout(_GOOGLE),
    "POSTGRESQL": _layout(_POSTGRES),
}


def view_names(dialect: Dialect) -> tuple[str, ...]:
    """All views of a dialect, in lower case."""
    return tuple(_LAYOUTS[dialect])


def columns_of(dialect: Dialect, view: str) -> tuple[Column, ...] | None:
    """The columns of a view, or None if there is no such view."""
    return _LAYOUTS[dialect].get(view.lower())
