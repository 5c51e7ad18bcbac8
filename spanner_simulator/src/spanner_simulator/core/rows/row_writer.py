"""Carries out mutations: the effect of each on a transaction's write set, and the final checks.

Parents must exist when a child is written, and children are deleted with their parent or prevent
it.  Unique indexes are checked after all mutations of a statement or a commit, so that two rows may
swap their values.  The rows that a statement examined are recorded as read, so that a commit can
check that they are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from spanner_simulator.core.key_encoding import successor
from spanner_simulator.core.rows.incoming_rows import (
    Evaluation,
    WritePlan,
    check_key_size,
    check_row,
    compute_generated,
    write_plan,
)
from spanner_simulator.core.rows.key_sets import KeySet, key_range, whole_key
from spanner_simulator.core.rows.mutations import PENDING, Delete, Mutation, Write, WriteKind
from spanner_simulator.core.rows.secondary_indexes import HiddenIndex
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.core.rows.table_rules import TableRules
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.rows.write_set import WriteSet, key_text
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import Row, Value
from spanner_simulator.errors import (
    SpannerError,
    already_exists,
    failed_precondition,
    not_found,
    out_of_range,
)


class RowWriter:
    """Applies the mutations of one statement, or of one commit, to a write set."""

    def __init__(
        self,
        writes: WriteSet,
        evaluation: Evaluation,
        *,
        reader: Transaction | None = None,
        commit_number: int = 0,
    ) -> None:
        """`reader` is the transaction that records the examined rows."""
        self._writes = writes
        self._evaluation = evaluation
        self._reader = reader
        self._commit_number = commit_number
        self._fresh: dict[tuple[str, bytes], TableRules] = {}

    def apply(self, mutations: Iterable[Mutation]) -> int:
        """Apply all mutations or, raising `SpannerError`, none; return the number of rows."""
        mark = self._writes.mark()
        try:
            count = sum([self._apply(mutation) for mutation in mutations])
            if self._fresh:
                self._check()
        except SpannerError:
            self._writes.roll_back_to(mark)
            raise
        return count

    def _apply(self, mutation: Mutation) -> int:
        rules = self._writes.rules.get(mutation.table.lower())
        if rules is None:
            raise not_found(f"Table not found: {mutation.table}")
        match mutation:
            case Write():
                plan = write_plan(rules, mutation.columns, mutation.kind)
                for plain in mutation.rows:
                    incoming = plan.read(plain, now_us=self._evaluation.now_us)
                    self._write(plan, mutation.kind, incoming)
                return len(mutation.rows)
            case Delete():
                return self._delete(rules, mutation.keys)
            case _:
                assert_never(mutation)

    def try_to_delete(self, name: str, key: bytes) -> bool:
        """Delete a row by its encoded key, with all that is deleted with it.

        False if it does not exist, or if other rows prevent it.
        """
        row = self._row(name, key)
        if row is None:
            return False
        mark = self._writes.mark()
        self._fresh.clear()
        try:
            self._remove(self._writes.rules[name], key, row)
            self._check()
        except SpannerError:
            self._writes.roll_back_to(mark)
            return False
        return True

    # -- looking

    def _row(self, name: str, key: bytes) -> Row | None:
        if self._reader is not None and not self._writes.is_touched(name, key):
            self._reader.note_key(name, key, commit_number=self._commit_number)
        return self._writes.row(name, key)

    def _scan(self, name: str, where: KeyRange) -> list[tuple[bytes, Row]]:
        if self._reader is not None:
            self._reader.note_range(name, where, commit_number=self._commit_number)
        return self._writes.scan(name, where)

    def _having(self, table: Table, values: Sequence[Value]) -> list[tuple[bytes, Row]]:
        """The rows of a table, or entries of an index, whose key begins with these values."""
        prefix = table.encoded_key_of(list(values))
        return self._scan(table.name.lower(), KeyRange(prefix, successor(prefix)))

    # -- writing

    def _write(self, plan: WritePlan, kind: WriteKind, incoming: Row) -> None:
        rules, table = plan.rules, plan.rules.table
        if plan.missing_keys:
            plan.fill_key(incoming, kind, self._evaluation)
        key = table.encoded_key(incoming)
        old = self._row(rules.name, key)
        match kind:
            case "insert":
                if old is not None:
                    raise already_exists(
                        f"Row {key_text(table, incoming)} in table {table.name} already exists",
                    )
                self._insert(plan, key, incoming)
            case "update":
                if old is None:
                    raise not_found(
                        f"Row {key_text(table, incoming)} in table {table.name} is missing. "
                        "Row cannot be updated.",
                    )
                self._update(plan, key, old, incoming)
            case "insert_or_update":
                plan.check_given()
                if old is None:
                    self._insert(plan, key, incoming)
                else:
                    self._update(plan, key, old, incoming)
            case "replace":
                if old is not None:
                    self._remove(rules, key, old)
                self._insert(plan, key, incoming)
            case _:
                assert_never(kind)

    def _insert(self, plan: WritePlan, key: bytes, incoming: Row) -> None:
        rules, table = plan.rules, plan.rules.table
        row = plan.whole_row(incoming, self._evaluation)
        check_key_size(table, key)
        if rules.parent is not None:
            self._check_parent(rules.parent, table, row)
        self._writes.insert(rules, key, row, table.value_names)
        self._note_change(rules, key)

    def _update(self, plan: WritePlan, key: bytes, old: Row, incoming: Row) -> None:
        rules, written = plan.rules, plan.written
        row = {**old, **incoming}
        if plan.on_update and written:
            row |= dict.fromkeys(plan.on_update, PENDING)
            written |= plan.on_update
        if rules.generated:
            compute_generated(rules, row, self._evaluation)
            _check_key_stays(rules.table, key, old, row)
        self._writes.update(rules, key, row, written)
        self._note_change(rules, key)

    def _check_parent(self, parent: Table, child: Table, row: Row) -> None:
        values = [row.get(name) for name in child.key_names[: len(parent.key)]]
        if self._row(parent.name.lower(), parent.encoded_key_of(values)) is None:
            raise not_found(
                f"Parent row for row {key_text(child, row)} in table {child.name} is missing. Row "
                "cannot be written.",
            )

    # -- deleting

    def _delete(self, rules: TableRules, keys: KeySet) -> int:
        table = rules.table
        count = 0
        for key in dict.fromkeys(whole_key(table, plain) for plain in keys.keys):
            row = self._row(rules.name, key)
            if row is not None:
                self._remove(rules, key, row)
                count += 1
        for span in [None] if keys.everything else keys.spans:
            for key, _ in self._scan(rules.name, key_range(table, span)):
                row = self._writes.row(rules.name, key)
                if row is not None:  # otherwise another one has deleted it
                    self._remove(rules, key, row)
                    count += 1
        return count

    def _remove(self, rules: TableRules, key: bytes, row: Row) -> None:
        """Delete a row, then its children table by table, each with its own children."""
        self._writes.remove(rules, key)
        for child in rules.children:
            values = [row.get(name) for name in rules.table.key_names]
            below = self._having(child.table, values)
            if below and not child.cascades:
                raise failed_precondition(
                    "Integrity constraint violation during DELETE/REPLACE. Found child row "
                    f"{key_text(child.table, below[0][1])} in table {child.table.name}.",
                )
            for child_key, child_row in below:
                self._remove(self._writes.rules[child.table.name.lower()], child_key, child_row)

    # -- what must hold in the end

    def _note_change(self, rules: TableRules, key: bytes) -> None:
        if rules.indexes or rules.table.checks:
            self._fresh[rules.name, key] = rules

    def _check(self) -> None:
        for (name, key), rules in self._fresh.items():
            row = self._writes.row(name, key)
            if row is None:
                continue
            # The last of several writes to a row counts.
            check_row(rules, row, self._evaluation)
            for index in rules.unique_indexes:
                self._check_unique(index, row)

    def _check_unique(self, index: HiddenIndex, row: Row) -> None:
        values = index.unique_key(row)
        if values is None:
            return
        entries = self._having(index.table, values)
        if len(entries) > 1:
            base = index.base
            same_values = [
                entry_row
                for _, entry_row in entries
                if key_text(base, entry_row) != key_text(base, row)
            ]
            raise already_exists(
                f"Unique index violation on index {index.index.name} at index key "
                f"{key_text(index.table, row, index.key_length)}. It conflicts with row "
                f"{key_text(base, (same_values or [row])[0])} in table {base.name}.",
            )


def _check_key_stays(table: Table, key: bytes, old: Row, new: Row) -> None:
    """Reject an update that would change a generated part of the key: OUT_OF_RANGE."""
    if table.encoded_key(new) == key:
        return
    column = next(name for name in table.key_names if new[name] != old[name])
    raise out_of_range(
        f"The value of generated primary key column `{table.name}.{column}` cannot be modified "
        "when its non-key dependent columns are updated.",
    )
