"""The DuckDB connection of one engine: closed to files and network, used by one thread.

Every failure leaves as a `SpannerError`: what a routine refused as it is, DuckDB's own errors in
Spanner's words.
"""

from __future__ import annotations

import inspect
import re
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import duckdb
from duckdb.func import SPECIAL

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.arrow_tables import arrow_table
from spanner_simulator.sql.functions import (
    json_routines,
    number_routines,
    text_routines,
    time_formats,
    time_routines,
)
from spanner_simulator.sql.functions.routines import ROUTINES, Routine, out_of_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spanner_simulator.core.values import Value, ValueType


TableRows: TypeAlias = "tuple[Mapping[str, ValueType], Sequence[Mapping[str, Value]]]"

# Imported so that their routines are registered.
_ROUTINE_MODULES: Final = (
    json_routines, number_routines, text_routines, time_formats, time_routines,
)  # fmt: skip
_SETTINGS: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_MACROS: Final = """
double_checked(r, a, op, b) AS
    CASE WHEN isfinite(r) OR NOT isfinite(a) OR NOT isfinite(b) THEN r
    ELSE CAST(refuse('double overflow: ' || float_text(a) || ' ' || op || ' '
        || float_text(CAST(b AS DOUBLE))) AS DOUBLE) END;
double_quotient(a, b) AS
    CASE WHEN b = 0
    THEN CAST(refuse('division by zero: ' || float_text(a) || ' / ' || float_text(b)) AS DOUBLE)
    ELSE double_checked(a / b, a, '/', b) END;
ieee_quotient(a, b) AS
    CASE WHEN b <> 0 OR isnan(a) OR isnan(b) THEN a / b
    WHEN a = 0 THEN CAST('NaN' AS DOUBLE)
    WHEN a > 0 THEN CAST('Infinity' AS DOUBLE)
    ELSE CAST('-Infinity' AS DOUBLE) END;
double_of(r, name, a) AS
    CASE WHEN isfinite(r) OR NOT isfinite(a) THEN r ELSE CAST(refuse(
        'Floating point error in function: ' || name || '(' || float_text(a) || ')') AS DOUBLE) END;
double_power(a, b) AS
    CASE WHEN isfinite(pow(a, b)) OR NOT isfinite(a) OR NOT isfinite(b) THEN pow(a, b)
    ELSE CAST(refuse('Floating point error in function: POW(' || float_text(a) || ', '
        || float_text(b) || ')') AS DOUBLE) END;
square_root(n) AS
    CASE WHEN n < 0
    THEN CAST(refuse('Argument to SQRT cannot be negative: ' || float_text(n)) AS DOUBLE)
    ELSE sqrt(n) END;
logarithm(n) AS
    CASE WHEN n <= 0 THEN double_of(CAST('-Infinity' AS DOUBLE), 'LN', n) ELSE ln(n) END;
logarithm_of_ten(n) AS
    CASE WHEN n <= 0 THEN double_of(CAST('-Infinity' AS DOUBLE), 'LOG10', n) ELSE log10(n) END;
logarithm_of_base(n, base) AS
    CASE WHEN n <= 0 OR base <= 0 OR base = 1 THEN CAST(refuse('Floating point error in function: '
        || 'LOG(' || float_text(n) || ', ' || float_text(base) || ')') AS DOUBLE)
    ELSE ln(n) / ln(base) END;
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
stepped_series(first, last, step) AS
    CASE WHEN step = 0 THEN CAST(refuse('Sequence step cannot be 0.') AS BIGINT[])
    ELSE generate_series(first, last, step) END;
pg_numeric_unless(one, other) AS
    CASE WHEN pg_numeric_order(one) = pg_numeric_order(other) THEN NULL ELSE one END;
double_half_even(n) AS
    CASE WHEN isfinite(n) AND abs(n - trunc(n)) = 0.5 AND CAST(abs(trunc(n)) % 2 AS BIGINT) = 0
    THEN trunc(n) ELSE round(n) END;
date_series(first, last) AS
    CAST(generate_series(first, last, INTERVAL 1 DAY) AS DATE[]);
numeric_average(total, n) AS
    CASE WHEN n > 0
    THEN numeric_divide(CAST(total AS DECIMAL(38,9)), CAST(n AS DECIMAL(38,9))) END;
pg_integer_average(total, n) AS
    CASE WHEN n > 0 THEN pg_numeric_divide(CAST(total AS VARCHAR), CAST(n AS VARCHAR)) END;
array_at(items, i) AS
    CASE WHEN i >= 0 THEN items[i + 1] END;
array_at_checked(items, i, shown) AS
    items[array_place(i, len(items), shown)];
array_part(items, first, last) AS
    list_slice(items, CASE WHEN first < 0 THEN first ELSE first + 1 END,
        CASE WHEN last < 0 THEN last ELSE last + 1 END);
array_is_distinct(items) AS
    len(list_distinct(items)) + CASE WHEN len(items) > list_aggregate(items, 'count') THEN 1
    ELSE 0 END = len(items);
replace_every(s, part, other) AS
    CASE WHEN part = '' THEN s ELSE replace(s, part, other) END;
non_negative(n, what) AS
    CASE WHEN n >= 0 THEN n
    ELSE CAST(refuse(what || ' must not be negative or NULL') AS BIGINT) END
"""
_INT_OVERFLOW = re.compile(
    r"Overflow in (?:addition|subtraction|multiplication) of INT\d+ \((-?\d+) ([+*-]) (-?\d+)\)"
)
_BY_ZERO = re.compile(r"Division by zero in expression \((-?\d+) (//|%) (-?\d+)\)")
_UNGROUPED = re.compile(r'column "([^"]+)" must appear in the GROUP BY clause')


class Duck:
    """A connection; create it in the thread that uses it."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1, "temp_directory": ""})
        self._refusals: list[SpannerError] = []
        self._registered: set[str] = set()
        for name, one in ROUTINES.items():
            self._connection.create_function(
                name,
                _guarded(one, self._refusals),
                list(one.arguments),
                one.result,
                # Otherwise a routine could not give NULL for what is not NULL.
                null_handling=SPECIAL,
                side_effects=one.is_volatile,
            )
        for macro in _MACROS.split(";"):
            self._connection.execute(f"CREATE MACRO {macro}")
        for setting in _SETTINGS:
            self._connection.execute(setting)

        # Also at exit: DuckDB complains loudly about connections that outlive the interpreter.
        self._close = weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        """Give the memory back; the object is then of no more use."""
        self._close()

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


def _guarded(one: Routine, refusals: list[SpannerError]) -> Callable[..., Any]:
    """A routine whose refusals are remembered: DuckDB only passes their text on."""
    function = one.function

    def call(*arguments: Any) -> Any:
        if not one.takes_null and None in arguments:
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
            for index in range(len(one.arguments))
        ]
    )
    return call


def _translated(error: duckdb.Error, refusals: Sequence[SpannerError]) -> SpannerError:
    text = str(error)
    # DuckDB folds constants on trial: not every refusal is what ended the query.
    for refusal in refusals:
        if str(refusal) in text:
            return refusal
    overflow = _INT_OVERFLOW.search(text)
    if overflow is not None:
        return _out_of_range(f"int64 overflow: {overflow[1]} {overflow[2]} {overflow[3]}")
    by_zero = _BY_ZERO.search(text)
    if by_zero is not None:
        one, operator, other = by_zero.groups()
        shown = f"{one} / {other}" if operator == "//" else f"MOD({one}, {other})"
        return _out_of_range(f"division by zero: {shown}")
    if "Like pattern must not end with escape character" in text:
        return _out_of_range("LIKE pattern ends with a backslash")
    if "More than one row returned by a subquery" in text:
        return _out_of_range("More than one element")
    ungrouped = _UNGROUPED.search(text)
    if ungrouped is not None:
        return SpannerError(
            Code.INVALID_ARGUMENT,
            f"Expression references column {ungrouped[1]} which is neither grouped nor aggregated",
        )
    return _by_class(error, text)


def _out_of_range(message: str) -> SpannerError:
    return SpannerError(Code.OUT_OF_RANGE, message)


def _by_class(error: duckdb.Error, text: str) -> SpannerError:
    first = text.split("\n", 1)[0].split(": ", 1)[-1]
    match error:
        case duckdb.OutOfRangeException():
            if "INT64" in text or "HUGEINT" in text or "INT128" in text:
                return _out_of_range("int64 overflow")
            return _out_of_range(first)
        case duckdb.ConversionException():
            return _out_of_range(f"{'numeric' if 'DECIMAL' in text else 'int64'} overflow")
        case duckdb.InvalidInputException():
            return _out_of_range(first)
        case duckdb.BinderException() | duckdb.ParserException() | duckdb.CatalogException():
            return SpannerError(
                Code.UNIMPLEMENTED, f"The simulator does not support: this query ({first})"
            )
        case _:
            return SpannerError(Code.INVALID_ARGUMENT, f"The query failed: {first}")
