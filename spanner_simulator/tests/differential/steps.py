"""What a workload asks a Spanner to do, step by step, as values.

Steps know how they are written into a request; they hold no result.
"""

from __future__ import annotations

import json
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
class Batch:
    """DML statements in one call."""

    statements: tuple[Dml, ...]


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


Action = Dml | Batch | Read | Query


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
class PartitionedDml:
    """One statement as partitioned DML."""

    dml: Dml


@dataclass(frozen=True, slots=True)
class ChangeSchema:
    """DDL in one call; `starts` names change streams that exist from here on."""

    statements: tuple[str, ...]
    starts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowSchema:
    """GetDatabaseDdl."""


Step = ChangeSchema | ShowSchema | Commit | ReadWrite | PartitionedDml | Read | Query


def told(step: Step | Action | Mutation) -> str:
    """A step in one line, for a reader."""
    match step:
        case ChangeSchema(statements):
            return "; ".join(statements)
        case ShowSchema():
            return "GetDatabaseDdl"
        case Commit(mutations, tag):
            return f"Commit {_tag(tag)}" + "; ".join(told(one) for one in mutations)
        case ReadWrite(actions, mutations, tag, commits):
            parts = [told(one) for one in (*actions, *mutations)]
            parts.append("commit" if commits else "rollback")
            return f"ReadWrite {_tag(tag)}" + "; ".join(parts)
        case PartitionedDml(dml):
            return f"partitioned {told(dml)}"
        case Batch(statements):
            return "batch [" + "; ".join(told(one) for one in statements) + "]"
        case Dml(sql, parameters) | Query(sql, parameters):
            at = getattr(step, "at", None)
            bound = json.dumps(
                {name: value for name, (value, _) in parameters.items()}, ensure_ascii=False
            )
            return sql + (f" with {bound}" if parameters else "") + _at(at)
        case Read(table, columns, keys, index, limit, at):
            by = f" by {index}" if index else ""
            return (
                f"read {table}{by}({', '.join(columns)}) {_keys(keys)}"
                + (f" limit {limit}" if limit else "")
                + _at(at)
            )
        case Write(kind, table, columns, rows):
            text = ", ".join(json.dumps(row, ensure_ascii=False) for row in rows)
            return f"{kind} {table}({', '.join(columns)}) {text}"
        case Delete(table, keys):
            return f"delete {table} {_keys(keys)}"


def _tag(tag: str) -> str:
    return f"tagged {tag}: " if tag else ""


def _at(at: int | None) -> str:
    return "" if at is None else f" at step {at}"


def _keys(keys: Keys) -> str:
    if keys.is_all:
        return "all"
    parts = [json.dumps(key, ensure_ascii=False) for key in keys.keys]
    for one in keys.intervals:
        ends = [json.dumps(end, ensure_ascii=False)[1:-1] for end in (one.start, one.end)]
        left, right = "[" if one.start_closed else "(", "]" if one.end_closed else ")"
        parts.append(f"{left}{ends[0]} .. {ends[1]}{right}")
    return " ".join(parts)
