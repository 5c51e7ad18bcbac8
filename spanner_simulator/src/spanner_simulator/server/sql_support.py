"""SQL for a host's databases: the engine of the extra `[sql]`, or an error without it.

Without the extra, DDL, mutations, reads and change stream queries work; a query, DML, and an
expression in DDL is rejected with the command that installs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.proto_descriptors import read_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanner_simulator.core.database import Database
    from spanner_simulator.core.rows.expressions import Expressions
    from spanner_simulator.core.schema.analysis import Analysis, ProtoFiles
    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.sql.engine import SqlEngine


LIBRARIES: Final = ("duckdb", "numpy", "pyarrow", "sqlglot")


@dataclass(frozen=True, slots=True)
class SqlSupport:
    """A host's SQL: the core's two ports, and an engine for each database."""

    analysis: Callable[[Catalogue], Analysis]
    expressions: Expressions
    # Raises UNIMPLEMENTED without the extra.
    engine: Callable[[Database], SqlEngine]


def find_sql_support() -> SqlSupport:
    """The SQL engine if the libraries of the extra are installed, otherwise the rejection.

    The libraries are loaded at the first statement that needs them; that takes as long as
    everything else at the start of a simulator.
    """
    if any(find_spec(name) is None for name in LIBRARIES):
        return SqlSupport(_no_analysis, _NoExpressions(), _no_engine)
    return SqlSupport(_analysis, cast("Expressions", _OnFirstUse(_expressions)), _engine)


# -- with the extra


def _engine(database: Database) -> SqlEngine:
    from spanner_simulator.sql.engine import SqlEngine  # noqa: PLC0415  # on first use

    return SqlEngine(database)


def _expressions() -> Expressions:
    from spanner_simulator.sql.expressions import DuckExpressions  # noqa: PLC0415  # on first use

    return DuckExpressions()


class _OnFirstUse:
    """A port of the core whose engine is loaded when the first of its methods is called."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        loaded = self._load()
        self._load = lambda: loaded
        return getattr(loaded, name)

    @staticmethod
    def proto_files(descriptors: bytes) -> ProtoFiles:
        """Types and files of a serialised google.protobuf.FileDescriptorSet, which need no SQL."""
        return read_descriptors(descriptors)


def _analysis(catalogue: Catalogue) -> Any:
    def load() -> Analysis:
        from spanner_simulator.sql.analysis import SqlAnalysis  # noqa: PLC0415  # on first use

        return SqlAnalysis(catalogue)

    return _OnFirstUse(load)


# -- without it


def _no_engine(_: Database) -> NoReturn:
    raise _refusal("queries and DML")


def _no_analysis(_: Catalogue) -> Analysis:
    return _NoAnalysis()


class _NoExpressions:
    """Rejects the expressions of a table that was created with the extra."""

    def evaluate(self, expression: str, **_row: object) -> NoReturn:
        """UNIMPLEMENTED."""
        raise _refusal(f"the expression {expression}")


class _NoAnalysis:
    """Accepts proto bundles, which are not SQL, and rejects everything else."""

    def mismatch(self, expression: str, **_row: object) -> NoReturn:
        """UNIMPLEMENTED."""
        raise _refusal(f"the expression {expression}")

    def proto_files(self, descriptors: bytes) -> ProtoFiles:
        """Types and files of a serialised google.protobuf.FileDescriptorSet."""
        return read_descriptors(descriptors)


def _refusal(purpose: str) -> SpannerError:
    return SpannerError(
        Code.UNIMPLEMENTED,
        f"The simulator needs its SQL engine for {purpose}. Install it with: "
        'pip install "spanner-simulator[sql]"',
    )
