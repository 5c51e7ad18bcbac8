"""Change streams and queries of them that must be refused: their codes, asked of both sides.

A case is a list of DDL statements and one request more, in a database with the tables U and V.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from differential.comparing import compare_results
from differential.difference import Difference
from differential.kinds import GOOGLE, POSTGRES, Dialect
from differential.side import Rows, Side

Call = Callable[[Side], Any]
_TABLES: dict[Dialect, tuple[str, ...]] = {
    GOOGLE: (
        "CREATE TABLE U (k INT64 NOT NULL, a STRING(MAX), b INT64) PRIMARY KEY (k)",
        "CREATE TABLE V (k INT64 NOT NULL, a STRING(MAX)) PRIMARY KEY (k)",
    ),
    POSTGRES: (
        "CREATE TABLE u (k bigint NOT NULL, a varchar, b bigint, PRIMARY KEY (k))",
        "CREATE TABLE v (k bigint NOT NULL, a varchar, PRIMARY KEY (k))",
    ),
}
_STREAM = "CREATE CHANGE STREAM s FOR U"


@dataclass(frozen=True, slots=True)
class Case:
    """DDL, each statement compared, and then `call`, or the printed schema."""

    name: str
    dialect: Dialect
    ddl: tuple[str, ...]
    call: Call = Side.schema


def run_case(number: int, case: Case, simulator: Side, emulator: Side) -> Iterator[Difference]:
    """Differences between what two sides say to a case."""
    for side in (simulator, emulator):
        side.create_database(f"case-{number}", case.dialect)
    calls: list[Call] = [_ddl(text) for text in (*_TABLES[case.dialect], *case.ddl)]
    for place, call in enumerate((*calls, case.call)):
        ours, theirs = (call(side) for side in (simulator, emulator))
        found = list(compare_results((ours, {}), (theirs, {}), is_ordered=False))
        for kind, where, left, right in found:
            facts = {"dialect": case.dialect}
            yield Difference(kind, place, f"case {case.name}{where}", left, right, facts)
        # The sides hold different schemas from here on.
        if found and found[0][0] == "success":
            break
    for side in (simulator, emulator):
        side.drop_database()


def _ddl(text: str) -> Call:
    return lambda side: side.change_schema([text])


# ---------------------------------------------------------------- DDL

_STREAM_STATEMENTS = (
    *("CREATE CHANGE STREAM s FOR U(k)", "CREATE CHANGE STREAM s FOR U(nope)"),
    *("CREATE CHANGE STREAM s FOR nope", "CREATE CHANGE STREAM s FOR U, U"),
    *("CREATE CHANGE STREAM s FOR U(a, a)", "CREATE CHANGE STREAM s FOR ALL(a)"),
    *("CREATE CHANGE STREAM s FOR U, ALL", "CREATE CHANGE STREAM s FOR U()"),
    *("CREATE CHANGE STREAM s", "CREATE CHANGE STREAM s FOR", "CREATE CHANGE STREAM U FOR ALL"),
    *("ALTER CHANGE STREAM s9 SET FOR ALL", "DROP CHANGE STREAM s9"),
)
_STREAM_SEQUENCES = (
    *((_STREAM, _STREAM), (_STREAM, "DROP TABLE U"), (_STREAM, "DROP CHANGE STREAM s", _STREAM)),
    (_STREAM, "ALTER TABLE U DROP COLUMN a"),
    ("CREATE CHANGE STREAM s FOR U(a)", "ALTER TABLE U DROP COLUMN a"),
    ("CREATE CHANGE STREAM s", "ALTER CHANGE STREAM s DROP FOR ALL"),
    (_STREAM, "ALTER CHANGE STREAM s DROP FOR ALL", "ALTER CHANGE STREAM s DROP FOR ALL"),
    *(
        tuple(f"CREATE CHANGE STREAM s{number} FOR {what}" for number in range(4))
        for what in ("U(a)", "ALL", "U()")
    ),
)
_OPTIONS = (
    *(
        f"retention_period = {text}"
        for text in ("'23h'", "'86400s'", "'168h'", "'abc'", "''", "24")
    ),
    *(f"value_capture_type = {text}" for text in ("'OLD'", "'new_row'", "true")),
    *("bogus = true", "exclude_insert = 'yes'", "exclude_update = 1"),
    "exclude_insert = true, exclude_insert = true",
    "exclude_insert = true, exclude_update = true, exclude_delete = true",
)


def _ddl_cases() -> Iterator[Case]:
    for dialect in (GOOGLE, POSTGRES):
        word = "OPTIONS" if dialect == GOOGLE else "WITH"
        change = "SET OPTIONS" if dialect == GOOGLE else "SET"
        some = [(text,) for text in _STREAM_STATEMENTS]
        some += _STREAM_SEQUENCES
        some += [(f"{_STREAM} {word} ({text})",) for text in _OPTIONS]
        some += [(_STREAM, f"ALTER CHANGE STREAM s {change} ({text})") for text in _OPTIONS]
        for statements in some:
            yield Case("; ".join(statements), dialect, statements)


# ---------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Moment:
    """A parameter's value: a moment relative to the side's own present."""

    seconds: float = 0


def _bound(
    start: Any = Moment(), end: Any = Moment(), token: Any = None, heartbeat: Any = "10000"
) -> dict[str, tuple[Any, str]]:
    return {
        "p1": (start, "TIMESTAMP"),
        "p2": (end, "TIMESTAMP"),
        "p3": (token, "STRING"),
        "p4": (heartbeat, "INT64"),
    }


def _stream(text: str, bound: dict[str, tuple[Any, str]], *, in_transaction: bool = False) -> Call:
    """A stream's query; of one that succeeds only how many rows it gave: tokens are made up."""

    def call(side: Side) -> Any:
        now = datetime.fromisoformat(side.now())
        values = {
            name: (_moment(now, value), {"code": kind}) for name, (value, kind) in bound.items()
        }
        transaction = side.begin("read_write") if in_transaction else None
        result = side.stream(text, values, transaction=transaction)
        if isinstance(result, Rows):
            result.rows = [[] for _ in result.rows]
        return result

    return call


def _moment(now: datetime, value: Any) -> Any:
    if not isinstance(value, Moment):
        return value
    at = now + timedelta(seconds=value.seconds)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


_ALL = "start_timestamp => @p1, end_timestamp => @p2, partition_token => @p3, "
_ALL += "heartbeat_milliseconds => @p4"
_GOOGLE_QUERIES = (
    *(f"SELECT ChangeRecord FROM READ_s({_ALL}) {tail}" for tail in ("AS r", "WHERE TRUE", ";")),
    *(f"SELECT {what} FROM READ_s({_ALL})" for what in ("1", "*", "ChangeRecord AS c", "COUNT(*)")),
    *(f"SELECT ChangeRecord FROM READ_s({_ALL}){tail}" for tail in (", U", " LIMIT 1")),
    f"SELECT ChangeRecord FROM READ_NOPE({_ALL})",
    *(
        f"SELECT ChangeRecord FROM READ_s({arguments})"
        for arguments in (
            *("@p1, @p2, @p3, @p4", "@p1, @p2, @p3, @p4, NULL", "@p1, @p2, @p3, @p4, NULL, NULL"),
            *("@p1, heartbeat_milliseconds => @p4", "start_timestamp => @p1, @p2", ""),
            *(f"{_ALL}, start_timestamp => @p1", f"{_ALL}, nope => 1"),
            *("CURRENT_TIMESTAMP(), @p2, @p3, @p4", "@p1, @p2, @p3, 1000 + 1"),
            *("NULL, @p2, @p3, @p4", "1, @p2, @p3, @p4"),
            *("@p1, @p2, @p3, @p4, ['x']", "@p1, @p2, @p3, @p4, []", "@p1, @p2, @p3, @missing"),
        )
    ),
)
_POSTGRES_CALL = "spanner.read_json_s($1, $2, $3, $4, null)"
_POSTGRES_QUERIES = (
    *(f"SELECT * FROM {_POSTGRES_CALL}{tail}" for tail in ("", " WHERE true", " AS r", " LIMIT 1")),
    'SELECT * FROM "spanner"."read_json_s"($1, $2, $3, $4, null)',
    f"SELECT read_json_s FROM {_POSTGRES_CALL}",
    "SELECT * FROM SPANNER.READ_JSON_S($1, $2, $3, $4, NULL)",
    "SELECT * FROM read_json_s($1, $2, $3, $4, null)",
    "SELECT * FROM spanner.read_json_s($1, $2, $3, $4)",
    "SELECT * FROM spanner.read_json_nope($1, $2, $3, $4, null)",
    "SELECT * FROM spanner.read_json_s(now(), $2, $3, $4, null)",
    "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, ARRAY['x'])",
)
_BOUNDS = {
    "null start": _bound(start=None),
    "start too early": _bound(Moment(-9e5)),
    "start too late": _bound(Moment(900), Moment(999)),
    "start after end": _bound(end=Moment(-0.001)),
    "null heartbeat": _bound(heartbeat=None),
    **{f"heartbeat {ms}": _bound(heartbeat=ms) for ms in ("99", "100", "300000", "300001")},
    "foreign token": _bound(token="zzz"),
    "empty token": _bound(token=""),
    "heartbeat before start": _bound(Moment(-9e5), heartbeat="1"),
    "token before heartbeat": _bound(token="zzz", heartbeat="1"),
}


def _query_cases() -> Iterator[Case]:
    queries = {GOOGLE: _GOOGLE_QUERIES, POSTGRES: _POSTGRES_QUERIES}
    plain = {
        GOOGLE: f"SELECT ChangeRecord FROM READ_s({_ALL})",
        POSTGRES: f"SELECT * FROM {_POSTGRES_CALL}",
    }
    for dialect, texts in queries.items():
        for text in texts:
            yield Case(text, dialect, (_STREAM,), _stream(text, _bound()))
        for name, bound in _BOUNDS.items():
            yield Case(name, dialect, (_STREAM,), _stream(plain[dialect], bound))
    for heartbeat in ("10000", "1"):
        call = _stream(plain[GOOGLE], _bound(heartbeat=heartbeat), in_transaction=True)
        yield Case(f"in a transaction, heartbeat {heartbeat}", GOOGLE, (_STREAM,), call)


CASES: tuple[Case, ...] = (*_ddl_cases(), *_query_cases())
