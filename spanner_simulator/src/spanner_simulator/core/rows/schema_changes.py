"""The effect of a schema change on rows: computed first, carried out if nothing forbids it.

Columns are added and removed in all versions of a row, so that old versions stay readable under the
new schema.  A new column's default is not added here but returned, because it is a change of data
that change streams report.  Indexes are built only from the current rows, because they begin to
exist now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from spanner_simulator.core.rows.incoming_rows import Evaluation, compute_generated
from spanner_simulator.core.rows.secondary_indexes import HiddenIndex
from spanner_simulator.core.rows.storage import KeyRange, TableRows
from spanner_simulator.core.rows.table_rules import Rules, TableRules
from spanner_simulator.core.rows.write_set import key_text
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import ColumnDefinition
from spanner_simulator.core.values import Row, check_vector
from spanner_simulator.errors import failed_precondition

_EVERYTHING = KeyRange(b"", None)


@dataclass(frozen=True, slots=True)
class BackFill:
    """A row that gets the defaults of new columns."""

    rules: TableRules
    key: bytes
    row: Row
    columns: frozenset[str]


@dataclass(slots=True)
class RowChangePlan:
    """The changes to the rows of a database; `carry_out` makes them and cannot fail."""

    gone: list[str] = field(default_factory=list)
    built: dict[str, TableRows] = field(default_factory=dict)
    rewritten: list[tuple[str, Callable[[Row], Row]]] = field(default_factory=list)
    added_us: dict[tuple[str, str], int] = field(default_factory=dict)
    fills: list[BackFill] = field(default_factory=list)

    def carry_out(self, rows: dict[str, TableRows]) -> None:
        """Change the rows to the new schema."""
        for name in self.gone:
            del rows[name]
        for name, change in self.rewritten:
            rows[name].rewrite(change)
        for (name, column), at_us in self.added_us.items():
            rows[name].added_us[column] = at_us
        rows.update(self.built)


def plan_rows(
    old: Rules,
    new: Rules,
    rows: Mapping[str, TableRows],
    evaluation: Evaluation,
    *,
    at_us: int,
) -> RowChangePlan:
    """The plan for a change from the old rules to the new ones; `SpannerError` if rows forbid it.

    `rows` is not changed.
    """
    plan = RowChangePlan()
    forms: dict[str, _NewForm] = {}
    for name, rules in new.items():
        before = old.get(name)
        if before is None:
            plan.built[name] = TableRows(at_us)
            continue
        if before.table is not rules.table:
            form = forms[name] = _NewForm(before.table, rules, evaluation)
            form.check(rows[name])
            if form.changes_rows:
                plan.rewritten.append((name, form.whole))
            plan.added_us.update({(name, column.name.lower()): at_us for column in form.adds})
            plan.fills.extend(form.fills(rows[name]))
    for name, rules in new.items():
        old_indexes = {index.name: index for index in old[name].indexes} if name in old else {}
        for index in rules.indexes:
            if not _is_same(old_indexes.get(index.name), index):
                current = _current(rows, name, forms.get(name))
                plan.built[index.name] = _build(index, current, at_us)
    names = set(new) | {index.name for rules in new.values() for index in rules.indexes}
    plan.gone = [name for name in rows if name not in names]
    return plan


def _current(
    rows: Mapping[str, TableRows], name: str, form: _NewForm | None
) -> Iterator[tuple[bytes, Row, int]]:
    """The current rows of a table under the new schema, with the commits that wrote them."""
    table = rows.get(name)
    for key, history in table.histories(_EVERYTHING) if table is not None else ():
        if history.row is not None:
            row = history.row if form is None else form.filled(history.row)
            yield key, row, history.changed_at


class _NewForm:
    """How rows of one table become rows of its new definition."""

    def __init__(self, old: Table, rules: TableRules, evaluation: Evaluation) -> None:
        table = rules.table
        self._rules = rules
        self._evaluation = evaluation
        self._old = old
        self.drops = [
            column.name for column in old.columns if column.name.lower() not in table.by_name
        ]
        self.adds = [column for column in table.columns if column.name.lower() not in old.by_name]
        self._altered = [
            (old.by_name[column.name.lower()], column)
            for column in table.columns
            if column.name.lower() in old.by_name and old.by_name[column.name.lower()] != column
        ]
        self._defaults = [column for column in self.adds if column.is_filled_in]
        self._blank: Row = {column.name: None for column in self.adds}

    @property
    def changes_rows(self) -> bool:
        """Whether a row of the old form is not a row of the new one."""
        return bool(self.drops or self.adds)

    def whole(self, row: Row) -> Row:
        """A row without dropped columns, with new ones, which are NULL unless generated."""
        new = {name: value for name, value in row.items() if name not in self.drops}
        new.update(self._blank)
        if any(column.generated is not None for column in self.adds):
            compute_generated(self._rules, new, self._evaluation)
        return new

    def filled(self, row: Row) -> Row:
        """The same with the defaults of new columns."""
        new = self.whole(row)
        for column in self._defaults:
            new[column.name] = self._evaluation.default(self._rules.table, column, {})
        if self._defaults and self._rules.generated:
            compute_generated(self._rules, new, self._evaluation)
        return new

    def fills(self, rows: TableRows) -> Iterator[BackFill]:
        """The current rows with the defaults of new columns; none when there are no defaults."""
        if not self._defaults:
            return
        names = frozenset(column.name for column in self._defaults)
        for key, row in rows.scan(_EVERYTHING, None):
            yield BackFill(self._rules, key, self.filled(row), names)

    def check(self, rows: TableRows) -> None:
        """Check the current rows against the new definition."""
        changed = [new for former, new in self._altered if former.value_type != new.value_type]
        required = [
            column
            for before, column in self._altered
            if before.is_nullable and not column.is_nullable
        ]
        if not (changed or required):
            return
        table = self._rules.table
        for _, row in rows.scan(_EVERYTHING, None):
            for column in required:
                if row.get(column.name) is None:
                    raise failed_precondition(
                        f"Cannot specify a null value for column: {column.name} in table: "
                        f"{table.name} referenced by key: {key_text(table, row)}",
                    )
            for column in changed:
                _check_length(table, column, row)


def _check_length(table: Table, column: ColumnDefinition, row: Row) -> None:
    value = row.get(column.name)
    check_vector(column.value_type, value, f"{table.name}.{column.name}")
    limit = (column.value_type.element or column.value_type).length
    for item in value if isinstance(value, tuple) else (value,):
        if limit is not None and isinstance(item, str | bytes) and len(item) > limit:
            raise failed_precondition(
                f"Reducing the length of column {column.name} to {limit} is not allowed because "
                f"it has a value of length {len(item)} at key: {key_text(table, row)}",
            )


def _is_same(old: HiddenIndex | None, new: HiddenIndex) -> bool:
    return old is not None and (old.index == new.index and old.names == new.names)


def _build(index: HiddenIndex, rows: Iterator[tuple[bytes, Row, int]], at_us: int) -> TableRows:
    """An index over the rows; FAILED_PRECONDITION if it is unique and they are not."""
    built = TableRows(at_us)
    seen: set[bytes] = set()
    for _, row, commit_number in rows:
        entry = index.entry(row)
        if entry is None:
            continue
        values = index.unique_key(row)
        if values is not None:
            index_key = index.table.encoded_key_of(values)
            if index_key in seen:
                raise failed_precondition(
                    f"Found uniqueness violation on index {index.index.name},  duplicate key: "
                    f"{key_text(index.table, row, index.key_length)}",
                )
            seen.add(index_key)
        built.write(entry[0], entry[1], commit_us=at_us, commit_number=commit_number)
    return built
