"""The small SELECT of the core in the shape of an engine: prepared statements, typed results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidegate.spanner_simulator.core.sql_engine import run_select
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.spanner_simulator.core.database import Database
    from tidegate.spanner_simulator.core.rows.transactions import Transaction
    from tidegate.spanner_simulator.core.values import Plain, Value, ValueType

__all__ = ["DmlResult", "Parameter", "Result", "SqlEngine", "Statement"]

_DML_WORDS = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A bound value and its declared type, if it has one."""

    plain: Plain
    value_type: ValueType | None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that may be run any number of times."""

    sql: str
    kind: Literal["query", "dml"]


@dataclass(frozen=True, slots=True)
class Result:
    """Columns and rows of a query."""

    columns: list[tuple[str, ValueType]]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class DmlResult:
    """How many rows were changed, and what THEN RETURN asked for."""

    count: int
    columns: list[tuple[str, ValueType]]
    rows: Sequence[Sequence[Value]]


class SqlEngine:
    """Runs the statements of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def prepare(self, sql: str) -> Statement:
        """Tell queries from DML."""
        words = sql.split(maxsplit=1)
        is_dml = bool(words) and words[0].upper() in _DML_WORDS
        return Statement(sql, "dml" if is_dml else "query")

    def query(
        self,
        statement: Statement,
        parameters: Mapping[str, Parameter],
        *,
        transaction: Transaction | None,
        read_us: int | None,
        now_us: int,  # noqa: ARG002  # engines that know CURRENT_TIMESTAMP need it
        check_privilege: Callable[[str, str], None],
    ) -> Result:
        """A SELECT of the subset that the simulator knows."""
        columns, rows = run_select(
            self._database,
            statement.sql,
            {name: one.plain for name, one in parameters.items()},
            transaction=transaction,
            read_us=read_us,
            check_select=lambda table: check_privilege(table, "SELECT"),
        )
        return Result(columns, rows)

    def dml(
        self,
        statement: Statement,
        parameters: Mapping[str, Parameter],  # noqa: ARG002  # as of `query`
        *,
        transaction: Transaction,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
        check_privilege: Callable[[str, str], None],  # noqa: ARG002
    ) -> DmlResult:
        """DML is refused by name."""
        word = statement.sql.split(maxsplit=1)[0].upper()
        raise SpannerError(Code.UNIMPLEMENTED, f"The simulator does not support: {word} statements")

    def columns(
        self,
        statement: Statement,
        parameters: Mapping[str, Parameter],  # noqa: ARG002  # as of `query`
    ) -> list[tuple[str, ValueType]]:
        """The columns of a statement that is not run."""
        raise _no_plans(statement)

    def parameter_types(
        self,
        statement: Statement,
        parameters: Mapping[str, Parameter],  # noqa: ARG002  # as of `query`
    ) -> dict[str, ValueType]:
        """The types of undeclared parameters."""
        raise _no_plans(statement)


def _no_plans(statement: Statement) -> SpannerError:
    return SpannerError(
        Code.UNIMPLEMENTED, f"The simulator does not support: plans of {statement.kind} statements"
    )
