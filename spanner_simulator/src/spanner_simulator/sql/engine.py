"""Runs queries for one database: parse once, bind once per types, read, compute.

An engine is used by one thread.  Statements are cached by their text, plans by the types of their
parameters, as long as the schema objects that they name stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlglot import exp

from spanner_simulator.errors import Code, SpannerError, invalid_argument
from spanner_simulator.sql.binder.statement import new_binding
from spanner_simulator.sql.binder.tables import check_hints
from spanner_simulator.sql.dml import DmlPlan, DmlResult, make_dml_plan
from spanner_simulator.sql.function_tables.functions import FUNCTIONS
from spanner_simulator.sql.open_duck import open_duck
from spanner_simulator.sql.parameter import Parameter
from spanner_simulator.sql.plans import Plan, ReadAt, check_privileges, make_plan
from spanner_simulator.sql.syntax import Syntax, bounded_depth, parse_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spanner_simulator.core.database import Database
    from spanner_simulator.core.rows.transactions import Transaction
    from spanner_simulator.core.values import Dialect, Plain, Value, ValueType
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.binder.bound_query import BoundQuery
    from spanner_simulator.sql.function_tables.signatures import Signature

__all__ = ["DmlResult", "Result", "SqlEngine", "Statement"]

_STATEMENTS_MAX: Final = 2000
_PLANS_MAX: Final = 32
# Clauses with which a query cannot be cut into shares that are computed separately.
_CLAUSES: Final = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "joins": "a join",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}


@dataclass(frozen=True, slots=True)
class Result:
    """Names and types of the columns, and the rows."""

    columns: list[tuple[str, ValueType]]
    rows: Iterable[list[Value]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement; `parameters` are the names in it, in lower case."""

    sql: str
    dialect: Dialect
    kind: Literal["query", "dml"]
    syntax: Syntax
    parameters: frozenset[str]
    plans: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_insert(self) -> bool:
        """Whether it is DML that adds rows."""
        return isinstance(self.syntax.tree, exp.Insert)


class SqlEngine:
    """Runs the statements of one database.  Raises `SpannerError` for rejected ones."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._statements: dict[str, Statement] = {}

    def prepare(self, sql: str) -> Statement:
        """Parse a query or a DML statement; INVALID_ARGUMENT or UNIMPLEMENTED for anything else."""
        statement = self._statements.get(sql)
        if statement is None:
            dialect = self.database.catalogue.dialect
            syntax = parse_statement(sql, dialect)
            statement = Statement(sql, dialect, syntax.kind, syntax, _parameter_names(syntax))
            if len(self._statements) >= _STATEMENTS_MAX:
                del self._statements[next(iter(self._statements))]
            self._statements[sql] = statement
        return statement

    def query(
        self,
        statement: Statement,
        parameters: Mapping[str, Parameter],
        *,
        transaction: Transaction | None,
        read_us: int | None,
        now_us: int,
        check_privilege: Callable[[str, str], None] | None = None,
    ) -> Result:
        """Run a query. `check_privilege(table, privilege)` may raise PERMISSION_DENIED."""
        if statement.kind != "query":
            raise invalid_argument(
                "DML statements can only be performed in a read-write or partitioned-dml "
                "transaction. Current transaction type is ReadOnly.",
            )
        plan: Plan = self._plan(statement, parameters)
        check_privileges(plan.reads, check_privilege)
        read_at = ReadAt(self.database, transaction, read_us, now_us)
        return Result(plan.columns, plan.run(open_duck, parameters, read_at))

    def dml(
        self,
        statement: Statement,
        parameters: Mapping[str, Parameter],
        *,
        transaction: Transaction,
        now_us: int,
        check_privilege: Callable[[str, str], None] | None = None,
    ) -> DmlResult:
        """Run a DML statement in a read-write transaction; all of it or, raising, nothing."""
        if statement.kind != "dml":
            raise invalid_argument("The statement is not valid DML.")
        plan: DmlPlan = self._plan(statement, parameters)
        read_at = ReadAt(self.database, transaction, None, now_us)
        return plan.run(open_duck, parameters, read_at, transaction, check_privilege)

    def parameter_types(
        self, statement: Statement, parameters: Mapping[str, Parameter]
    ) -> dict[str, ValueType]:
        """The types that parameters without a declared type have in this statement."""
        all_parameters = _with_all(statement, parameters)
        types: Mapping[str, ValueType] = self._plan(statement, all_parameters).types
        return {
            name: kind for name, kind in types.items() if all_parameters[name].value_type is None
        }

    def columns(
        self, statement: Statement, parameters: Mapping[str, Parameter]
    ) -> list[tuple[str, ValueType]]:
        """The result columns of a query that is not run."""
        plan: Plan = self._plan(statement, _with_all(statement, parameters))
        return plan.columns

    def check_partitionable(self, statement: Statement) -> None:
        """INVALID_ARGUMENT for a query that is more than a scan of one table.

        The service requires a distributed union at the root of its plan: rows of one table,
        filtered and projected one by one.  Anything that combines several rows is rejected.
        """
        reason = _obstacle(statement.syntax.tree, FUNCTIONS[statement.dialect])
        if reason is not None:
            raise invalid_argument(
                "Query is not root partitionable since it does not have a DistributedUnion at the "
                f"root: it has {reason}.",
            )

    def _plan(self, statement: Statement, parameters: Mapping[str, Parameter]) -> Any:
        """A valid plan for these types of parameters, created if there is none."""
        signature = tuple(
            (name, given.value_type or _shape(given.plain))
            for name in sorted(statement.parameters)
            if (given := parameters.get(name)) is not None
        )
        plan = statement.plans.get(signature)
        if plan is None or not plan.holds(self.database.catalogue):
            syntax = statement.syntax
            binding = new_binding(syntax.text, self.database.catalogue, parameters)
            check_hints(binding)
            with bounded_depth():
                plan = (
                    make_plan(binding, _bind(binding, syntax))
                    if statement.kind == "query"
                    else make_dml_plan(binding, syntax)
                )
            if len(statement.plans) >= _PLANS_MAX:
                statement.plans.clear()
            statement.plans[signature] = plan
        return plan


def _with_all(statement: Statement, parameters: Mapping[str, Parameter]) -> Mapping[str, Parameter]:
    """The parameters, with NULL for those that are in the statement but not given."""
    return {name: Parameter(None) for name in statement.parameters} | dict(parameters)


def _bind(binding: Binding, syntax: Syntax) -> BoundQuery:
    query = binding.query(syntax.tree, parent=None, ctes={})
    for column in query.columns:
        if column.value_type.code == "STRUCT":
            raise SpannerError(
                Code.UNIMPLEMENTED,
                "Unsupported query shape: A struct value cannot be returned as a column value. "
                "Rewrite the query to flatten the struct fields in the result.",
            )
    return query


def _shape(plain: Plain) -> object:
    """The part of an untyped parameter's value that determines its type."""
    if isinstance(plain, list):
        return ("list", *{_shape(item) for item in plain if item is not None})
    return type(plain)


def _parameter_names(syntax: Syntax) -> frozenset[str]:
    trees = [syntax.tree, *syntax.returning]
    prefix = "p" if syntax.dialect == "POSTGRESQL" else ""
    return frozenset(
        f"{prefix}{node.this.name}".lower()
        for tree in trees
        for node in tree.find_all(exp.Parameter)
    )


def _obstacle(tree: exp.Expr, functions: Mapping[str, tuple[Signature, ...]]) -> str | None:
    if not isinstance(tree, exp.Select):
        return "no single SELECT"
    for clause, words in _CLAUSES.items():
        if tree.args.get(clause):
            return words
    source = tree.args.get("from_")
    if source is not None and not isinstance(source.this, exp.Table):
        return "no table in FROM"
    if any(inner is not tree for inner in tree.find_all(exp.Query)):
        return "a subquery"
    for call in tree.find_all(exp.Anonymous):
        if any(signature.is_aggregate for signature in functions.get(call.name.upper(), ())):
            return "an aggregate function"
    return None
