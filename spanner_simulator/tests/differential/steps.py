"""What a workload asks a Spanner to do, step by step, as values.

Steps know how they are written into a request; they hold no result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from differential.side import Parameters, wire


@dataclass(frozen=True, slots=True)
class Interval:
    """A key range; closed or open at either end."""

    start: tuple[Any, ...]
    end: tuple[Any, ...]
    start_closed: bool = True
    end_closed: bool = False


@dataclass(frozen=True, slots=True)
class Keys:
    """A key set."""

    keys: tuple[tuple[Any, ...], ...] = ()
    intervals: tuple[Interval, ...] = ()
    is_all: bool = False

    def write_to(self, message: Any) -> None:
        message.all_ = self.is_all
        for key in self.keys:
            message.keys.add().values.extend(wire(part) for part in key)
        for one in self.intervals:
            made = message.ranges.add()
            start = made.start_closed if one.start_closed else made.start_open
            end = made.end_closed if one.end_closed else made.end_open
            start.values.extend(wire(part) for part in one.start)
            end.values.extend(wire(part) for part in one.end)
            start.SetInParent()
            end.SetInParent()


@dataclass(frozen=True, slots=True)
class Write:
    """A mutation that writes rows."""

    kind: Literal["insert", "update", "insert_or_update", "replace"]
    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def write_to(self, message: Any) -> None:
        body = getattr(message, self.kind)
        body.table = self.table
        body.columns.extend(self.columns)
        body.SetInParent()
        for row in self.rows:
            body.values.add().values.extend(wire(part) for part in row)


@dataclass(frozen=True, slots=True)
class Delete:
    """A mutation that deletes rows."""

    table: str
    keys: Keys

    def write_to(self, message: Any) -> None:
        message.delete.table = self.table
        self.keys.write_to(message.delete.key_set)
        message.delete.key_set.SetInParent()


Mutation = Write | Delete


@dataclass(frozen=True, slots=True)
class Dml:
    """One DML statement; `returns` where it has a THEN RETURN or RETURNING."""

    sql: str
    parameters: Parameters
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A Read; `at` is the step whose commit timestamp it reads at, None for a strong one."""

    table: str
    columns: tuple[str, ...]
    keys: Keys
    index: str = ""
    limit: int = 0
    at: int | None = None

    def write_to(self, message: Any) -> None:
        message.table, message.index, message.limit = self.table, self.index, self.limit
        message.columns.extend(self.columns)
        self.keys.write_to(message.key_set)


@dataclass(frozen=True, slots=True)
class Query:
    """An SQL query; `is_ordered` where its ORDER BY leaves no choice."""

    sql: str
    parameters: Parameters
    is_ordered: bool = False
    at: int | None = None


Action = Dml | Read | Query


@dataclass(frozen=True, slots=True)
class Commit:
    """Mutations in a transaction of their own."""

    mutations: tuple[Mutation, ...]
    tag: str = ""


@dataclass(frozen=True, slots=True)
class ReadWrite:
    """A read-write transaction: actions, then its mutations with the commit, or a rollback."""

    actions: tuple[Action, ...]
    mutations: tuple[Mutation, ...] = ()
    tag: str = ""
    commits: bool = True


@dataclass(frozen=True, slots=True)
class ChangeSchema:
    """DDL in one call; `starts` names change streams that exist from here on."""

    statements: tuple[str, ...]
    starts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowSchema:
    """GetDatabaseDdl."""


Step = ChangeSchema | ShowSchema | Commit | ReadWrite | Read | Query
