"""Resolves a name in a FROM clause: a table, a view, or a system catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spanner_simulator.core.schema.information_schema import information_schema_table
from spanner_simulator.errors import SpannerError, invalid_argument, not_found
from spanner_simulator.sql.binder.scans import Scan
from spanner_simulator.sql.syntax import position
from spanner_simulator.sql.terms.bound import Bound, ColumnRef, Relation, RelationColumn, quoted

if TYPE_CHECKING:
    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.sql.binder.binding import Binding


# For a statement and for a table; FORCE_INDEX must name an index, the others have no effect.
_HINTS: Final = frozenset(
    (
        "use_additional_parallelism", "optimizer_version", "optimizer_statistics_package",
        "allow_distributed_merge", "lock_scanned_ranges", "scan_method", "execution_method",
        "allow_timestamp_predicate_pushdown", "parameter_sensitive", "pdml_max_parallelism",
        "force_index", "groupby_scan_optimization", "index_strategy", "seekable_key_size",
        "join_method", "force_join_order", "hash_join_build_side", "hash_join_execution",
        "batch_mode", "group_method", "join_type",
        "spanner_emulator.disable_query_null_filtered_index_check",
        "spanner_emulator.disable_query_partitionability_check",
    )
)  # fmt: skip


def path_of(node: exp.Table) -> list[exp.Identifier]:
    """The identifiers of a table's name, catalogue first."""
    parts = [node.args.get(key) for key in ("catalog", "db", "this")]
    return [part for part in parts if isinstance(part, exp.Identifier)]


def _name(binding: Binding, node: exp.Table) -> tuple[str, str]:
    """The name as written, and its key in the catalogue."""
    written = ".".join(part.name for part in path_of(node))
    key = written.lower()
    if binding.is_postgres:
        key = key.removeprefix("public.")
    return written, key


def table_not_found(binding: Binding, node: exp.Table) -> SpannerError:
    """The error for an unknown table."""
    written, _ = _name(binding, node)
    if binding.is_postgres:
        return not_found(f'relation "{written}" does not exist')
    return binding.text.error(f"Table not found: {written}", position(node))


def table_relation(binding: Binding, node: exp.Table, alias: str | None) -> tuple[str, Relation]:
    """A table's or a system table's text and columns.  Raises `SpannerError` if it is missing."""
    written, key = _name(binding, node)
    table = binding.catalogue.tables.get(key)
    quoted_name = path_of(node)[-1]
    is_other_case = (
        binding.is_postgres
        and quoted_name.args.get("quoted")
        and (table is not None and table.name.split(".")[-1] != quoted_name.name)
    )
    if table is not None and not is_other_case:
        binding.dependencies.append(("tables", key, table))
        _check_force_index(binding, node, table)
        binding.reads.add(table.name)
        scan = Scan(len(binding.scans) + 1, table.name, table.type_of, table)
    else:
        system_scan = _system_scan(binding, key)
        if system_scan is None:
            raise table_not_found(binding, node)
        scan = system_scan
    binding.scans.append(scan)
    name = binding.fresh("r")
    relation = relation_of_scan(scan, alias or written.split(".")[-1], name)
    return f"scan{scan.number} AS {name}", relation


def relation_of_scan(scan: Scan, alias: str, name: str) -> Relation:
    """A scan's columns, for a text that calls it `name`."""
    hidden = (
        {table_column.name for table_column in scan.table.columns if table_column.is_hidden}
        if scan.table
        else ()
    )
    columns = [
        RelationColumn(
            column,
            Bound(f"{name}.{quoted(column)}", kind, column=ColumnRef(scan.number, column)),
            column in hidden,
        )
        for column, kind in scan.types.items()
    ]
    return Relation(alias, columns, scans=frozenset((scan.number,)), is_whole=True)


def _system_scan(binding: Binding, key: str) -> Scan | None:
    schema, _, view = key.rpartition(".")
    if schema != "information_schema" and not (binding.is_postgres and schema == "pg_catalog"):
        return None
    catalogue = binding.catalogue
    name = view if schema == "information_schema" else key
    try:
        columns, _ = information_schema_table(catalogue, name)
    except SpannerError:
        return None
    number = len(binding.scans) + 1
    return Scan(
        number, key, dict(columns), rows=lambda: information_schema_table(catalogue, name)[1]
    )


# -- hints


def check_hints(binding: Binding) -> None:
    """Reject hints that Spanner does not know."""
    for hint in binding.text.hints:
        if hint.name not in _HINTS:
            raise invalid_argument(f"Unsupported hint: {hint.name.upper()}.")


def _check_force_index(binding: Binding, node: exp.Table, table: Table) -> None:
    ends = [part.meta["end"] for part in path_of(node) if "end" in part.meta]
    alias = node.args.get("alias")
    if alias is not None:
        ends += [part.meta["end"] for part in alias.walk() if "end" in part.meta]
    if not ends:
        return
    for hint in binding.text.hints:
        if hint.name != "force_index" or hint.after - 1 not in ends:
            continue
        name = hint.value.lower()
        if name == "_base_table":
            continue
        index = binding.catalogue.indexes.get(name)
        if index is None or index.table.lower() != table.name.lower():
            raise invalid_argument(
                f"The table {table.name} does not have a secondary index called {hint.value}",
            )
        binding.dependencies.append(("indexes", name, index))
