"""From a mutation's plain values to a complete row of a table: types, sizes, defaults, checks.

Everything that depends only on the table and the list of columns is computed once, in a
`WritePlan`.  Rows that are already in the database are not examined here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spanner_simulator.core.rows.expressions import Expressions, IdentityCounts
from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP, PENDING, WriteKind
from spanner_simulator.core.rows.table_rules import TableRules
from spanner_simulator.core.rows.write_set import key_text
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import ColumnDefinition
from spanner_simulator.core.timestamps import format_ns
from spanner_simulator.core.values import Dialect, Plain, Row, Value, ValueType, check_vector
from spanner_simulator.core.values import reader as value_reader
from spanner_simulator.errors import (
    SpannerError,
    failed_precondition,
    invalid_argument,
    out_of_range,
)

STRING_CHARACTERS_MAX: Final = 2_621_440
CELL_BYTES_MAX: Final = 10 * 1024 * 1024
_CERTAINLY_SHORT: Final = 1_000
_KEY_BYTES_MAX: Final = 8_192
_KEY_PART_OVERHEAD: Final = 3
_PLANS_MAX: Final = 1_000
_BOOL: Final = ValueType("BOOL")


@dataclass(slots=True)
class Evaluation:
    """How expressions are computed within one statement; immutable."""

    expressions: Expressions
    dialect: Dialect
    now_us: int
    counts: IdentityCounts

    def default(self, table: Table, column: ColumnDefinition, row: Row) -> Value:
        """The value of a column that an insert leaves out."""
        if column.identity is not None:
            return self.counts.draw(table, column)
        if column.defaults_to_commit:
            return PENDING
        return self.value(column.default or "", table, row, column.value_type)

    def value(self, expression: str, table: Table, row: Row, result: ValueType) -> Value:
        """The value of one expression over a row."""
        return self.expressions.evaluate(
            expression, table=table, row=row, result=result, dialect=self.dialect,
            now_us=self.now_us,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class WritePlan:
    """How to read mutations of one table that name these columns.

    `written` has the non-key columns; `missing_keys` the key columns that are not named,
    `on_update` others that an update sets to the commit timestamp; `required` the other NOT NULL
    columns, `unfilled` those of them that have no other source.
    """

    rules: TableRules
    names: tuple[str, ...]
    readers: tuple[Callable[[Plain], Value], ...]
    timestamps: tuple[str, ...]
    written: frozenset[str]
    missing_keys: tuple[ColumnDefinition, ...]
    on_update: frozenset[str]
    defaults: tuple[ColumnDefinition, ...]
    required: tuple[str, ...]
    unfilled: tuple[str, ...]
    blank: Row

    def read(self, plain: list[Plain], *, now_us: int) -> Row:
        """The named columns' values; a mutation may not write a future commit timestamp."""
        if len(plain) != len(self.names):
            raise invalid_argument(
                f"Mutation column and value size mismatch: Found: {len(self.names)} columns and "
                f"{len(plain)} values",
            )
        row: Row = {}
        for name, reader, value in zip(self.names, self.readers, plain, strict=True):
            row[name] = reader(value)
        for name in self.timestamps:
            moment = row[name]
            if isinstance(moment, int) and now_us * 1000 < moment != PENDING:
                raise failed_precondition(
                    "Cannot write timestamps in the future, found: "
                    f"{format_ns(moment).removesuffix('Z')}+00:00",
                )
        return row

    def check_given(self) -> None:
        """Reject an insert_or_update without a NOT NULL column, even if the row exists."""
        if self.unfilled:
            raise _not_given(self.rules.table, self.unfilled[0])

    def fill_key(self, row: Row, kind: WriteKind, evaluation: Evaluation) -> None:
        """Fill in the key columns that are not named."""
        table = self.rules.table
        for column in self.missing_keys:
            name = column.name
            if column.generated is not None:
                full_row = {**self.blank, **row}
                row[name] = evaluation.value(column.generated, table, full_row, column.value_type)
            elif column.is_filled_in and kind == "update":
                raise failed_precondition(
                    f"Implicit use of primary key default value for column `{table.name}.{name}` "
                    "is not allowed in UPDATE mutations. The column must have a specific value."
                )
            elif column.is_filled_in:
                row[name] = evaluation.default(table, column, row)
            elif column.is_nullable:
                row[name] = None
            elif kind == "update":
                raise failed_precondition(
                    f"Cannot specify a null value for column: {name} in table: {table.name}",
                )
            else:
                raise _not_given(table, name)

    def whole_row(self, incoming: Row, evaluation: Evaluation) -> Row:
        """A new row from the named columns: defaults, generated columns, and all others NULL."""
        table = self.rules.table
        row = {**self.blank, **incoming}
        for column in self.defaults:
            if column.name not in incoming:
                row[column.name] = evaluation.default(table, column, incoming)
        if self.rules.generated:
            compute_generated(self.rules, row, evaluation)
        for name in self.required:
            if row[name] is None:
                raise _not_given(table, name)
        return row


def write_plan(rules: TableRules, columns: tuple[str, ...], kind: WriteKind) -> WritePlan:
    """The plan of mutations of this kind that name these columns.  Raises `SpannerError`.

    Plans are cached with the rules, and are dropped with them when the schema changes.
    """
    plan: WritePlan | None = rules.plans.get((columns, kind))
    if plan is None:
        if len(rules.plans) >= _PLANS_MAX:
            rules.plans.clear()
        plan = rules.plans[columns, kind] = _make_plan(rules, columns, kind)
    return plan


def _make_plan(rules: TableRules, columns: tuple[str, ...], kind: WriteKind) -> WritePlan:
    table = rules.table
    named_columns = tuple(table.column(name) for name in columns)
    names = tuple(column.name for column in named_columns)
    for position, column in enumerate(named_columns):
        if column.name in names[:position]:
            raise invalid_argument(f"Multiple values for column {column.name}.")
        # An update has to identify its row.
        if column.generated is not None and not (
            kind == "update" and column.name in table.key_names
        ):
            raise failed_precondition(
                f"Cannot write into generated column `{table.name}.{column.name}`.",
            )
    rest = [column for column in table.columns if column.name not in names]
    required = [column for column in rest if not column.is_nullable]
    return WritePlan(
        rules,
        names,
        tuple(column_reader(table, column) for column in named_columns),
        tuple(column.name for column in named_columns if column.commit_timestamp),
        frozenset(names) & table.value_names,
        tuple(table.column(name) for name in table.key_names if name not in names),
        frozenset(column.name for column in rest if column.on_update is not None),
        tuple(column for column in rest if column.is_filled_in),
        tuple(column.name for column in required),
        tuple(
            column.name
            for column in required
            if not column.is_filled_in and column.generated is None
        ),
        {column.name: None for column in table.columns},
    )


def column_reader(table: Table, column: ColumnDefinition) -> Callable[[Plain], Value]:
    """A function from a plain value to the column's value, which may reject it."""
    value_type, is_nullable = column.value_type, column.is_nullable
    where = f"{table.name}.{column.name}"
    read = value_reader(value_type, where)
    if value_type.code == "TIMESTAMP":
        return _timestamp_reader(column, where, table.name)
    is_sized = value_type.code in ("STRING", "BYTES", "JSON", "PROTO", "ARRAY")

    def read_column(plain: Plain) -> Value:
        if plain is None:
            if not is_nullable:
                raise _null_refused(where, table.name)
            return None
        value = read(plain)
        # Most values are far too short for any limit.
        if is_sized and not (value.__class__ is str and len(value) < _CERTAINLY_SHORT):
            _check_size(value_type, value, where)
        return value

    return read_column


def _timestamp_reader(column: ColumnDefinition, where: str, table: str) -> Callable[[Plain], Value]:
    read = value_reader(column.value_type, where)

    def read_timestamp(plain: Plain) -> Value:
        if plain is None:
            if not column.is_nullable:
                raise _null_refused(where, table)
            return None
        if plain != COMMIT_TIMESTAMP:
            return read(plain)
        if not column.commit_timestamp:
            raise failed_precondition(
                "Cannot write commit timestamp because the allow_commit_timestamp column option "
                f"is not set to true for column {where}, or for all corresponding shared key "
                "columns in this table's interleaved table hierarchy.",
            )
        return PENDING

    return read_timestamp


def _check_size(value_type: ValueType, value: Value, where: str) -> None:
    """The limits of STRING(MAX) and of any one cell."""
    if isinstance(value, str) and value_type.code == "STRING":
        size, limit = len(value), STRING_CHARACTERS_MAX
    elif isinstance(value, tuple):
        for item in value:
            if value_type.element is not None:
                _check_size(value_type.element, item, where)
        size, limit = sum(_bytes_of(item) for item in value), CELL_BYTES_MAX
    else:
        size, limit = _bytes_of(value), CELL_BYTES_MAX
    if size > limit:
        raise failed_precondition(
            f"New value exceeds the maximum size limit for this column: {where}, size: {size}, "
            f"limit: {limit}.",
        )


def _bytes_of(value: Value) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return len(value) if isinstance(value, bytes) else 8


def compute_generated(rules: TableRules, row: Row, evaluation: Evaluation) -> None:
    """Add the generated columns' values to a row."""
    for column in rules.generated:
        row[column.name] = evaluation.value(
            column.generated or "", rules.table, row, column.value_type
        )
        where = f"{rules.table.name}.{column.name}"
        check_vector(column.value_type, row[column.name], where)
        if row[column.name] is None and not column.is_nullable:
            raise _null_refused(where, rules.table.name)


def check_row(rules: TableRules, row: Row, evaluation: Evaluation) -> None:
    """Check a row against the table's CHECK constraints: OUT_OF_RANGE if one is false."""
    table = rules.table
    for check in table.checks:
        if evaluation.value(check.expression, table, row, _BOOL) is False:
            key = key_text(table, row)[1:-1]
            raise out_of_range(
                f"Check constraint `{table.name}`.`{check.name}` is violated for key ({key})",
            )


def check_key_size(table: Table, key: bytes) -> None:
    """Check an encoded key against the limit on keys; INVALID_ARGUMENT."""
    if len(key) <= _KEY_BYTES_MAX:
        return
    size = len(key) - len(table.prefix) - _KEY_PART_OVERHEAD * len(table.key)
    if size > _KEY_BYTES_MAX:
        raise invalid_argument(
            f"Number of bytes for key of table {table.name} is {size} which exceeds the maximum "
            f"of {_KEY_BYTES_MAX}.",
        )


def _null_refused(where: str, table: str) -> SpannerError:
    return failed_precondition(
        f"Cannot specify a null value for column: {where} in table: {table}",
    )


def _not_given(table: Table, column: str) -> SpannerError:
    return failed_precondition(
        f"A new row in table {table.name} does not specify a non-null value for NOT NULL column: "
        f"{column}",
    )
