"""The DuckDB connection of one engine: closed to files and network, used by one thread.

Every failure is raised as a `SpannerError`: a routine's own error unchanged, DuckDB's errors with
Spanner's texts.
"""

from __future__ import annotations

import inspect
import re
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb
from duckdb.func import SPECIAL

from spanner_simulator.errors import Code, SpannerError, invalid_argument, out_of_range, unsupported
from spanner_simulator.sql.arrow_tables import arrow_table
from spanner_simulator.sql.functions import number_routines, text_routines, time_routines
from spanner_simulator.sql.functions.routines import ROUTINES, Routine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spanner_simulator.core.values import Value, ValueType


TableRows: TypeAlias = "tuple[Mapping[str, ValueType], Sequence[Mapping[str, Value]]]"

# Imported so that their routines are registered.
_ROUTINE_MODULES: Final = (number_routines, text_routines, time_routines)
_SETTINGS: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_MACROS: Final = """
non_negative(n, what) AS
    CASE WHEN n >= 0 THEN n
    ELSE CAST(refuse(what || ' must not be negative or NULL') AS BIGINT) END;
double_checked(r, a, op, b) AS
    CASE WHEN isfinite(r) OR NOT isfinite(a) OR NOT isfinite(b) THEN r
    ELSE CAST(refuse('double overflow: ' || float_text(a) || ' ' || op || ' '
        || float_text(CAST(b AS DOUBLE))) AS DOUBLE) END;
double_quotient(a, b) AS
    CASE WHEN b = 0
    THEN CAST(refuse('division by zero: ' || float_text(a) || ' / ' || float_text(b)) AS DOUBLE)
    ELSE double_checked(a / b, a, '/', b) END;
int_negative(n) AS
    CASE WHEN n = -9223372036854775808
    THEN CAST(refuse('int64 overflow: --9223372036854775808') AS BIGINT) ELSE -n END;
int_absolute(n) AS
    CASE WHEN n < 0 THEN int_negative(n) ELSE n END;
int_quotient(a, b) AS
    CASE WHEN b = -1 THEN int_negative(a) ELSE a // b END;
int_rest(a, b) AS
    CASE WHEN b = -1 THEN 0 * a ELSE a % b END;
float_order(n) AS
    CASE WHEN n IS NOT NULL THEN [CAST(NOT isnan(n) AS DOUBLE), CAST(n AS DOUBLE)] END;
least_of(items) AS
    CASE WHEN typeof(items) IN ('DOUBLE[]', 'FLOAT[]')
        AND CAST(list_max(items) AS VARCHAR) = 'nan'
    THEN list_max(items) ELSE list_min(items) END;
pg_numeric_unless(one, other) AS
    CASE WHEN pg_numeric_order(one) = pg_numeric_order(other) THEN NULL ELSE one END;
numeric_average(total, n) AS
    numeric_computed(CAST(total AS DECIMAL(38,9)), '/', CAST(n AS DECIMAL(38,9)));
pg_integer_average(total, n) AS
    pg_numeric_computed(CAST(total AS VARCHAR), '/', CAST(n AS VARCHAR));
pg_part(s, first, n) AS
    substring(s, greatest(first, 1),
        greatest(non_negative(n, 'A length') + least(first, 1) - 1, 0));
array_at(items, i) AS
    CASE WHEN i >= 0 THEN items[i + 1] END;
array_at_checked(items, i, shown) AS
    items[array_place(i, len(items), shown)];
replace_every(s, part, other) AS
    CASE WHEN part = '' THEN s ELSE replace(s, part, other) END
"""
# DuckDB's text, the code, and Spanner's text.
_WORDS: Final = (
    (
        r"Overflow in \w+ of INT\d+ \((-?\d+) ([+*-]) (-?\d+)\)",
        Code.OUT_OF_RANGE,
        r"int64 overflow: \1 \2 \3",
    ),
    (
        r"Division by zero in expression \((-?\d+) // (-?\d+)\)",
        Code.OUT_OF_RANGE,
        r"division by zero: \1 / \2",
    ),
    (
        r"Division by zero in expression \((-?\d+) % (-?\d+)\)",
        Code.OUT_OF_RANGE,
        r"division by zero: MOD(\1, \2)",
    ),
    (r"More than one row returned by a subquery", Code.OUT_OF_RANGE, "More than one element"),
    (
        r'column "([^"]+)" must appear in the GROUP BY clause',
        Code.INVALID_ARGUMENT,
        r"Expression references column \1 which is neither grouped nor aggregated",
    ),
)


class Duck:
    """A connection; create it in the thread that uses it."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1, "temp_directory": ""})
        self._refusals: list[SpannerError] = []
        for name, routine in ROUTINES.items():
            self._connection.create_function(
                name,
                _guarded(routine, self._refusals),
                list(routine.arguments),
                routine.result,
                # Otherwise a routine could not return NULL for an argument other than NULL.
                null_handling=SPECIAL,
                side_effects=routine.is_volatile,
            )
        for macro in _MACROS.split(";"):
            self._connection.execute(f"CREATE MACRO {macro}")
        for setting in _SETTINGS:
            self._connection.execute(setting)

        # Also at exit: DuckDB prints errors about connections that outlive the interpreter.
        self.close = weakref.finalize(self, self._connection.close)

    def run(
        self, sql: str, parameters: Mapping[str, Any], tables: Mapping[str, TableRows]
    ) -> list[tuple[Any, ...]]:
        """All rows of a query over rows that are given by table. Raises `SpannerError`."""
        self._refusals.clear()
        try:
            for name, table in tables.items():
                self._connection.register(name, arrow_table(*table))
            return self._connection.execute(sql, dict(parameters) or None).fetchall()
        except duckdb.Error as error:
            raise _translated(error, self._refusals) from None
        finally:
            for name in tables:
                self._connection.unregister(name)


def _guarded(routine: Routine, refusals: list[SpannerError]) -> Callable[..., Any]:
    """A routine whose errors are recorded: DuckDB only passes on their text."""
    function = routine.function

    def call(*arguments: Any) -> Any:
        if None in arguments:
            return None
        try:
            return function(*arguments)
        except SpannerError as error:
            refusals.append(error)
            raise
        except (ArithmeticError, ValueError) as error:
            refusal = out_of_range(str(error))
            refusals.append(refusal)
            raise refusal from None

    # DuckDB counts the parameters.
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # any function has one
        [
            inspect.Parameter(f"a{index}", inspect.Parameter.POSITIONAL_ONLY)
            for index in range(len(routine.arguments))
        ]
    )
    return call


def _translated(error: duckdb.Error, refusals: Sequence[SpannerError]) -> SpannerError:
    text = str(error)
    # DuckDB folds constants on trial: not every refusal is what ended the query.
    for refusal in refusals:
        if str(refusal) in text:
            return refusal
    for pattern, code, shown in _WORDS:
        match = re.search(pattern, text)
        if match is not None:
            return SpannerError(code, match.expand(shown))
    first = text.split("\n", 1)[0].split(": ", 1)[-1]
    match error:
        case duckdb.ConversionException():
            kind = "numeric" if "DECIMAL" in text else "int64"
            return out_of_range(f"{kind} overflow")
        case duckdb.OutOfRangeException() if "INT" in text:
            return out_of_range("int64 overflow")
        case duckdb.OutOfRangeException() | duckdb.InvalidInputException():
            return out_of_range(first)
        case duckdb.BinderException() | duckdb.ParserException() | duckdb.CatalogException():
            return unsupported(f"this query ({first})")
        case _:
            return invalid_argument(f"The query failed: {first}")
