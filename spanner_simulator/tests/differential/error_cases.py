"""What must be refused, and how: the error tables of DDL and of queries, asked of both sides.

A case is a list of requests to a database of its own. All their results are compared; most cases
end with the request that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from differential.comparing import compare_results
from differential.difference import Difference
from differential.kinds import GOOGLE, POSTGRES, Dialect
from differential.side import Failure, Rows, Side


@dataclass(frozen=True, slots=True)
class Moment:
    """A parameter's value: a moment relative to the side's own present."""

    seconds: float = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; a stream's query goes to ExecuteStreamingSql, others to ExecuteSql."""

    kind: Literal["ddl", "stream", "sql", "show"]
    text: str = ""
    parameters: dict[str, tuple[Any, str]] = field(default_factory=dict)
    in_transaction: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Requests to one new database."""

    name: str
    dialect: Dialect
    asks: tuple[Ask, ...]


def run_case(number: int, case: Case, simulator: Side, emulator: Side) -> Iterator[Difference]:
    """Differences between what two sides say to a case."""
    for side in (simulator, emulator):
        side.create_database(f"case-{number}", case.dialect)
    for place, ask in enumerate(case.asks):
        ours, theirs = (_shape(_asked(side, ask), ask) for side in (simulator, emulator))
        found = list(compare_results((ours, {}), (theirs, {}), is_ordered=False))
        for kind, where, left, right in found:
            yield Difference(kind, place, f"case {case.name}: {ask.text}{where}", left, right)
        # The sides hold different schemas from here on.
        if found and found[0][0] == "success":
            break
    for side in (simulator, emulator):
        side.drop_database()


def _asked(side: Side, ask: Ask) -> Any:
    match ask.kind:
        case "ddl":
            return side.change_schema([ask.text])
        case "show":
            return side.schema()
        case "stream" | "sql":
            now = datetime.fromisoformat(side.now())
            bound = {
                name: (_moment(now, value), {"code": code})
                for name, (value, code) in ask.parameters.items()
            }
            if ask.kind == "stream" and not ask.in_transaction:
                return side.stream(ask.text, bound)
            transaction = side.begin("read_write") if ask.in_transaction else None
            if isinstance(transaction, Failure):
                return transaction
            if ask.kind == "stream":
                return side.stream(ask.text, bound, transaction=transaction)
            return side.execute(ask.text, bound, transaction=transaction, sequence=1)


def _shape(result: Any, ask: Ask) -> Any:
    """Of a stream's query that succeeds only how many rows it gave: tokens are made up."""
    if ask.kind == "stream" and isinstance(result, Rows):
        result.rows = [[] for _ in result.rows]
    return result


def _moment(now: datetime, value: Any) -> Any:
    if not isinstance(value, Moment):
        return value
    at = now + timedelta(seconds=value.seconds)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


# ---------------------------------------------------------------- DDL

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
_GENERATED: dict[Dialect, str] = {
    GOOGLE: "ALTER TABLE U ADD COLUMN g INT64 AS (b + 1) STORED",
    POSTGRES: "ALTER TABLE u ADD COLUMN g bigint GENERATED ALWAYS AS (b + 1) STORED",
}


def _ddl(name: str, dialect: Dialect, *statements: str) -> Case:
    asks = tuple(Ask("ddl", text) for text in (*_TABLES[dialect], *statements))
    return Case(name, dialect, (*asks, Ask("show")))


_STREAMS_BOTH = (
    ("key column listed", "CREATE CHANGE STREAM s FOR {u}(k)"),
    ("unknown column", "CREATE CHANGE STREAM s FOR {u}(nope)"),
    ("unknown table", "CREATE CHANGE STREAM s FOR nope"),
    ("table twice", "CREATE CHANGE STREAM s FOR {u}, {u}"),
    ("column twice", "CREATE CHANGE STREAM s FOR {u}(a, a)"),
    ("ALL with columns", "CREATE CHANGE STREAM s FOR ALL(a)"),
    ("ALL after a table", "CREATE CHANGE STREAM s FOR {u}, ALL"),
    ("keys only", "CREATE CHANGE STREAM s FOR {u}()"),
    ("no FOR", "CREATE CHANGE STREAM s"),
    ("FOR nothing", "CREATE CHANGE STREAM s FOR"),
    ("missing stream altered", "ALTER CHANGE STREAM s9 SET FOR ALL"),
    ("missing stream dropped", "DROP CHANGE STREAM s9"),
)

_OPTIONS = (
    ("retention too long", "retention_period = '31d'"),
    ("retention too short", "retention_period = '23h'"),
    ("retention of a day in seconds", "retention_period = '86400s'"),
    ("retention of 7 days", "retention_period = '168h'"),
    ("retention malformed", "retention_period = 'abc'"),
    ("retention negative", "retention_period = '-1d'"),
    ("retention empty", "retention_period = ''"),
    ("retention no text", "retention_period = 24"),
    ("capture type", "value_capture_type = 'OLD'"),
    ("capture type in lower case", "value_capture_type = 'new_row'"),
    ("capture type no text", "value_capture_type = true"),
    ("unknown option", "bogus = true"),
    ("non-bool for a bool", "exclude_insert = 'yes'"),
    ("number for a bool", "exclude_update = 1"),
    ("an option twice", "exclude_insert = true, exclude_insert = true"),
    ("all exclusions", "exclude_insert = true, exclude_update = true, exclude_delete = true"),
    ("option is NULL", "exclude_insert = NULL"),
)


def _ddl_cases() -> Iterator[Case]:
    for dialect in (GOOGLE, POSTGRES):
        short = "google" if dialect == GOOGLE else "postgres"
        u = "U" if dialect == GOOGLE else "u"
        for name, text in _STREAMS_BOTH:
            yield _ddl(f"{short}: {name}", dialect, text.format(u=u))
        generated = (_GENERATED[dialect], f"CREATE CHANGE STREAM s FOR {u}(g)")
        yield _ddl(f"{short}: generated column", dialect, *generated)
        made = f"CREATE CHANGE STREAM s FOR {u}"
        word = "OPTIONS" if dialect == GOOGLE else "WITH"
        for name, text in _OPTIONS:
            yield _ddl(f"{short}: {name}", dialect, f"{made} {word} ({text})")
        change = "SET OPTIONS" if dialect == GOOGLE else "SET"
        for name, text in _OPTIONS:
            if name != "option is NULL":
                altered = f"ALTER CHANGE STREAM s {change} ({text})"
                yield _ddl(f"{short}: altered to {name}", dialect, made, altered)
        four = tuple(f"CREATE CHANGE STREAM s{number} FOR {u}(a)" for number in range(1, 5))
        yield _ddl(f"{short}: four streams on a column", dialect, *four)
        four = tuple(f"CREATE CHANGE STREAM s{number} FOR ALL" for number in range(1, 5))
        yield _ddl(f"{short}: four streams on all", dialect, *four)
        mixed = (f"CREATE CHANGE STREAM s3 FOR {u}", f"CREATE CHANGE STREAM s4 FOR {u}(a)")
        yield _ddl(f"{short}: four streams, mixed", dialect, *four[:2], *mixed)
        keys = tuple(f"CREATE CHANGE STREAM s{number} FOR {u}()" for number in range(1, 5))
        yield _ddl(f"{short}: four streams on keys", dialect, *keys)
        yield _ddl(f"{short}: duplicate name", dialect, made, made)
        yield _ddl(f"{short}: name of a table", dialect, f"CREATE CHANGE STREAM {u} FOR ALL")
        yield _ddl(f"{short}: drop a tracked table", dialect, made, f"DROP TABLE {u}")
        two = (made, f"CREATE CHANGE STREAM s2 FOR {u}(a)")
        yield _ddl(f"{short}: drop a table tracked twice", dialect, *two, f"DROP TABLE {u}")
        dropped = f"ALTER TABLE {u} DROP COLUMN a"
        yield _ddl(f"{short}: drop a tracked column", dialect, two[1], dropped)
        yield _ddl(f"{short}: drop a column of a tracked table", dialect, made, dropped)
        nothing = "ALTER CHANGE STREAM s DROP FOR ALL"
        yield _ddl(f"{short}: DROP FOR with no FOR", dialect, "CREATE CHANGE STREAM s", nothing)
        yield _ddl(f"{short}: DROP FOR twice", dialect, made, nothing, nothing)
        yield _ddl(f"{short}: drop and create", dialect, made, "DROP CHANGE STREAM s", made)
        yield _ddl(f"{short}: empty options", dialect, f"{made} {word} ()")
        for name, text in _TABLE_DDL[dialect]:
            yield _ddl(f"{short}: {name}", dialect, *text)
    yield _ddl(
        "google: an index", GOOGLE, "CREATE INDEX i ON U (a)", "CREATE CHANGE STREAM s FOR i"
    )
    view = "CREATE VIEW w SQL SECURITY INVOKER AS SELECT U.k FROM U"
    yield _ddl("google: a view", GOOGLE, view, "CREATE CHANGE STREAM s FOR w")
    reset = "ALTER CHANGE STREAM s RESET (exclude_insert)"
    made = "CREATE CHANGE STREAM s FOR u WITH (exclude_insert = true)"
    yield _ddl("postgres: reset", POSTGRES, made, reset)


_TABLE_DDL: dict[Dialect, tuple[tuple[str, tuple[str, ...]], ...]] = {
    GOOGLE: (
        ("duplicate table", ("CREATE TABLE U (k INT64) PRIMARY KEY (k)",)),
        ("reserved word", ("CREATE TABLE W (At INT64) PRIMARY KEY (At)",)),
        ("no primary key", ("CREATE TABLE W (k INT64)",)),
        ("key column missing", ("CREATE TABLE W (k INT64) PRIMARY KEY (x)",)),
        ("key of JSON", ("CREATE TABLE W (k JSON) PRIMARY KEY (k)",)),
        ("key of an array", ("CREATE TABLE W (k ARRAY<INT64>) PRIMARY KEY (k)",)),
        ("column twice in a table", ("CREATE TABLE W (k INT64, k INT64) PRIMARY KEY (k)",)),
        ("key column twice", ("CREATE TABLE W (k INT64) PRIMARY KEY (k, k)",)),
        ("unknown type", ("CREATE TABLE W (k NOPE) PRIMARY KEY (k)",)),
        ("length too long", ("CREATE TABLE W (k STRING(99999999)) PRIMARY KEY (k)",)),
        ("length zero", ("CREATE TABLE W (k STRING(0)) PRIMARY KEY (k)",)),
        ("no length", ("CREATE TABLE W (k STRING) PRIMARY KEY (k)",)),
        ("drop missing table", ("DROP TABLE Nope",)),
        ("drop missing index", ("DROP INDEX Nope",)),
        ("alter missing table", ("ALTER TABLE Nope ADD COLUMN x INT64",)),
        ("add existing column", ("ALTER TABLE U ADD COLUMN a INT64",)),
        ("add NOT NULL column", ("ALTER TABLE U ADD COLUMN x INT64 NOT NULL",)),
        ("drop missing column", ("ALTER TABLE U DROP COLUMN x",)),
        ("drop key column", ("ALTER TABLE U DROP COLUMN k",)),
        ("drop column of a generated one", (_GENERATED[GOOGLE], "ALTER TABLE U DROP COLUMN b")),
        ("change type", ("ALTER TABLE U ALTER COLUMN a BYTES(MAX)",)),
        ("change type badly", ("ALTER TABLE U ALTER COLUMN a INT64",)),
        ("set default", ("ALTER TABLE U ALTER COLUMN a SET DEFAULT ('x')",)),
        ("index on missing table", ("CREATE INDEX I ON Nope (a)",)),
        ("index on missing column", ("CREATE INDEX I ON U (nope)",)),
        ("index twice", ("CREATE INDEX I ON U (a)", "CREATE INDEX I ON U (b)")),
        ("index stores a key column", ("CREATE INDEX I ON U (a) STORING (k)",)),
        ("index stores its column", ("CREATE INDEX I ON U (a) STORING (a)",)),
        ("drop table with an index", ("CREATE INDEX I ON U (a)", "DROP TABLE U")),
        ("drop indexed column", ("CREATE INDEX I ON U (a)", "ALTER TABLE U DROP COLUMN a")),
        (
            "interleave in a missing table",
            ("CREATE TABLE W (k INT64) PRIMARY KEY (k), INTERLEAVE IN PARENT Nope",),
        ),
        (
            "interleave with another key",
            ("CREATE TABLE W (x INT64, k INT64) PRIMARY KEY (x, k), INTERLEAVE IN PARENT U",),
        ),
        (
            "drop a parent",
            (
                (
                    "CREATE TABLE W (k INT64 NOT NULL, x INT64) PRIMARY KEY (k, x), "
                    "INTERLEAVE IN PARENT U"
                ),
                "DROP TABLE U",
            ),
        ),
        (
            "foreign key to a missing table",
            ("CREATE TABLE W (k INT64, FOREIGN KEY (k) REFERENCES Nope (k)) PRIMARY KEY (k)",),
        ),
        (
            "row deletion on a missing column",
            ("ALTER TABLE U ADD ROW DELETION POLICY (OLDER_THAN(nope, INTERVAL 1 DAY))",),
        ),
        (
            "row deletion on a number",
            ("ALTER TABLE U ADD ROW DELETION POLICY (OLDER_THAN(b, INTERVAL 1 DAY))",),
        ),
        ("default of another type", ("CREATE TABLE W (k INT64 DEFAULT ('x')) PRIMARY KEY (k)",)),
        (
            "generated from nothing",
            ("CREATE TABLE W (k INT64, g INT64 AS (x) STORED) PRIMARY KEY (k)",),
        ),
        (
            "commit timestamp on a number",
            ("CREATE TABLE W (k INT64 OPTIONS (allow_commit_timestamp = true)) PRIMARY KEY (k)",),
        ),
        ("nonsense", ("CREATE NONSENSE x",)),
        ("empty", ("",)),
        ("half a statement", ("CREATE TABLE",)),
        ("view of nothing", ("CREATE VIEW W SQL SECURITY INVOKER AS SELECT x.k FROM Nope x",)),
        ("view", ("CREATE VIEW W SQL SECURITY INVOKER AS SELECT U.k FROM U",)),
        (
            "drop a viewed table",
            ("CREATE VIEW W SQL SECURITY INVOKER AS SELECT U.k FROM U", "DROP TABLE U"),
        ),
        ("named schema", ("CREATE SCHEMA sch", "CREATE TABLE sch.W (k INT64) PRIMARY KEY (k)")),
    ),
    POSTGRES: (
        ("duplicate table", ("CREATE TABLE u (k bigint PRIMARY KEY)",)),
        ("no primary key", ("CREATE TABLE w (k bigint)",)),
        ("key column missing", ("CREATE TABLE w (k bigint, PRIMARY KEY (x))",)),
        ("key of jsonb", ("CREATE TABLE w (k jsonb PRIMARY KEY)",)),
        ("key of numeric", ("CREATE TABLE w (k numeric PRIMARY KEY)",)),
        ("column twice in a table", ("CREATE TABLE w (k bigint PRIMARY KEY, k bigint)",)),
        ("unknown type", ("CREATE TABLE w (k nope PRIMARY KEY)",)),
        ("unsupported type", ("CREATE TABLE w (k integer PRIMARY KEY)",)),
        ("smallint", ("CREATE TABLE w (k smallint PRIMARY KEY)",)),
        ("serial", ("CREATE TABLE w (k serial PRIMARY KEY)",)),
        ("timestamp without zone", ("CREATE TABLE w (k timestamp PRIMARY KEY)",)),
        ("drop missing table", ("DROP TABLE nope",)),
        ("drop missing index", ("DROP INDEX nope",)),
        ("alter missing table", ("ALTER TABLE nope ADD COLUMN x bigint",)),
        ("add existing column", ("ALTER TABLE u ADD COLUMN a bigint",)),
        ("drop missing column", ("ALTER TABLE u DROP COLUMN x",)),
        ("drop key column", ("ALTER TABLE u DROP COLUMN k",)),
        ("index on missing column", ("CREATE INDEX i ON u (nope)",)),
        ("index twice", ("CREATE INDEX i ON u (a)", "CREATE INDEX i ON u (b)")),
        ("drop table with an index", ("CREATE INDEX i ON u (a)", "DROP TABLE u")),
        ("nonsense", ("CREATE NONSENSE x",)),
        ("empty", ("",)),
        ("view", ("CREATE VIEW w SQL SECURITY INVOKER AS SELECT u.k FROM u",)),
        ("named schema", ("CREATE SCHEMA sch", "CREATE TABLE sch.w (k bigint PRIMARY KEY)")),
        ("if not exists", ("CREATE TABLE IF NOT EXISTS u (k bigint PRIMARY KEY)",)),
        (
            "quoted names",
            (
                'CREATE TABLE "Quoted" ("Key" bigint PRIMARY KEY)',
                'CREATE CHANGE STREAM "Mixed" FOR "Quoted"',
            ),
        ),
        (
            "ttl",
            ("CREATE TABLE w (k bigint PRIMARY KEY, at timestamptz) TTL INTERVAL '3 days' ON at",),
        ),
        ("varchar array", ("CREATE TABLE w (k bigint PRIMARY KEY, x varchar(10)[])",)),
    ),
}


# ---------------------------------------------------------------- queries

_ALL = (
    "start_timestamp => @s, end_timestamp => @e, partition_token => @t, "
    "heartbeat_milliseconds => @h"
)
_NOW, _LATER = Moment(), Moment(1)


def _bound(
    start: Any = _NOW, end: Any = _NOW, token: Any = None, heartbeat: Any = "10000"
) -> dict[str, tuple[Any, str]]:
    return {
        "s": (start, "TIMESTAMP"),
        "e": (end, "TIMESTAMP"),
        "t": (token, "STRING"),
        "h": (heartbeat, "INT64"),
    }


_QUERIES: tuple[tuple[str, str, dict[str, tuple[Any, str]]], ...] = (
    ("alias", f"SELECT ChangeRecord AS c FROM READ_S({_ALL})", _bound()),
    ("table alias", f"SELECT ChangeRecord FROM READ_S({_ALL}) AS r", _bound()),
    ("where", f"SELECT ChangeRecord FROM READ_S({_ALL}) WHERE TRUE", _bound()),
    ("limit", f"SELECT ChangeRecord FROM READ_S({_ALL}) LIMIT 1", _bound()),
    ("order", f"SELECT ChangeRecord FROM READ_S({_ALL}) ORDER BY 1", _bound()),
    ("another column", f"SELECT 1 FROM READ_S({_ALL})", _bound()),
    ("two columns", f"SELECT ChangeRecord, 1 FROM READ_S({_ALL})", _bound()),
    ("count", f"SELECT COUNT(*) FROM READ_S({_ALL})", _bound()),
    ("join", f"SELECT ChangeRecord FROM READ_S({_ALL}), U", _bound()),
    ("subquery", f"SELECT ChangeRecord FROM (SELECT * FROM READ_S({_ALL}))", _bound()),
    ("star", f"SELECT * FROM READ_S({_ALL})", _bound()),
    ("lower case", f"SELECT changerecord FROM read_s({_ALL})", _bound()),
    ("back-ticks", f"SELECT `ChangeRecord` FROM `READ_S`({_ALL})", _bound()),
    ("semicolon", f"SELECT ChangeRecord FROM READ_S({_ALL});", _bound()),
    ("blanks", f"SELECT\n ChangeRecord\tFROM  READ_S ( {_ALL} ) ", _bound()),
    ("comment", f"SELECT ChangeRecord -- all\nFROM READ_S({_ALL})", _bound()),
    ("positional", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, @h)", _bound()),
    ("positional with options", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, @h, NULL)", _bound()),
    (
        "reordered",
        (
            "SELECT ChangeRecord FROM READ_S(heartbeat_milliseconds => @h, end_timestamp => @e, "
            "read_options => NULL, start_timestamp => @s)"
        ),
        _bound(),
    ),
    (
        "mixed",
        "SELECT ChangeRecord FROM READ_S(@s, heartbeat_milliseconds => @h)",
        _bound(end=_NOW),
    ),
    ("named first", "SELECT ChangeRecord FROM READ_S(start_timestamp => @s, @e)", _bound()),
    ("named twice", f"SELECT ChangeRecord FROM READ_S({_ALL}, start_timestamp => @s)", _bound()),
    ("unknown name", f"SELECT ChangeRecord FROM READ_S({_ALL}, nope => 1)", _bound()),
    ("too many", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, @h, NULL, NULL)", _bound()),
    ("none", "SELECT ChangeRecord FROM READ_S()", {}),
    ("expression", "SELECT ChangeRecord FROM READ_S(CURRENT_TIMESTAMP(), @e, @t, @h)", _bound()),
    ("expression as heartbeat", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, 1000 + 1)", _bound()),
    ("unknown stream", f"SELECT ChangeRecord FROM READ_NOPE({_ALL})", _bound()),
    ("null start", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(start=None)),
    ("literal null start", "SELECT ChangeRecord FROM READ_S(NULL, @e, @t, @h)", _bound()),
    ("start too early", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(start=Moment(-9e5))),
    (
        "start too late",
        f"SELECT ChangeRecord FROM READ_S({_ALL})",
        _bound(Moment(900), Moment(999)),
    ),
    ("start after end", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(end=Moment(-0.001))),
    ("null heartbeat", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(heartbeat=None)),
    ("heartbeat low", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(heartbeat="99")),
    ("heartbeat least", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(heartbeat="100")),
    ("heartbeat high", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(heartbeat="300001")),
    ("heartbeat most", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(heartbeat="300000")),
    ("read options", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, @h, ['x'])", _bound()),
    ("empty read options", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, @h, [])", _bound()),
    ("foreign token", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(token="zzz")),
    ("empty token", f"SELECT ChangeRecord FROM READ_S({_ALL})", _bound(token="")),
    ("text as start", "SELECT ChangeRecord FROM READ_S('nonsense', @e, @t, @h)", _bound()),
    ("number as start", "SELECT ChangeRecord FROM READ_S(1, @e, @t, @h)", _bound()),
    ("missing parameter", "SELECT ChangeRecord FROM READ_S(@s, @e, @t, @missing)", _bound()),
    (
        "start text parameter",
        f"SELECT ChangeRecord FROM READ_S({_ALL})",
        _bound() | {"s": (_NOW, "STRING")},
    ),
    (
        "heartbeat before start",
        f"SELECT ChangeRecord FROM READ_S({_ALL})",
        _bound(start=Moment(-9e5), heartbeat="1"),
    ),
    (
        "token before heartbeat",
        f"SELECT ChangeRecord FROM READ_S({_ALL})",
        _bound(token="zzz", heartbeat="1"),
    ),
)

_POSTGRES_QUERIES: tuple[tuple[str, str, dict[str, tuple[Any, str]]], ...] = (
    ("plain", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null)", {}),
    ("quoted", 'SELECT * FROM "spanner"."read_json_s"($1, $2, $3, $4, null)', {}),
    ("by name", "SELECT read_json_s FROM spanner.read_json_s($1, $2, $3, $4, null)", {}),
    ("upper case", "SELECT * FROM SPANNER.READ_JSON_S($1, $2, $3, $4, NULL)", {}),
    ("no schema", "SELECT * FROM read_json_s($1, $2, $3, $4, null)", {}),
    ("four arguments", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4)", {}),
    ("where", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null) WHERE true", {}),
    ("alias", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null) AS r", {}),
    ("limit", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null) LIMIT 1", {}),
    ("unknown stream", "SELECT * FROM spanner.read_json_nope($1, $2, $3, $4, null)", {}),
    ("expression", "SELECT * FROM spanner.read_json_s(now(), $2, $3, $4, null)", {}),
    ("null start", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null)", _bound(start=None)),
    (
        "start too early",
        "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null)",
        _bound(start=Moment(-9e5)),
    ),
    (
        "heartbeat low",
        "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null)",
        _bound(heartbeat="99"),
    ),
    (
        "foreign token",
        "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, null)",
        _bound(token="zzz"),
    ),
    ("read options", "SELECT * FROM spanner.read_json_s($1, $2, $3, $4, ARRAY['x'])", {}),
)

_WRONG_SQL: tuple[tuple[Dialect, str], ...] = (
    (GOOGLE, "SELECT"),
    (GOOGLE, "SELECT * FROM Nope"),
    (GOOGLE, "SELECT nope FROM U"),
    (GOOGLE, "SELECT k FROM U WHERE"),
    (GOOGLE, "SELECT k FROM U WHERE a = 1"),
    (GOOGLE, "SELECT 1/0"),
    (GOOGLE, "SELECT CAST('x' AS INT64)"),
    (GOOGLE, "SELECT @missing"),
    (GOOGLE, "SELECT U.k FROM U, V WHERE k = 1"),
    (GOOGLE, "SELECT k, COUNT(*) FROM U"),
    (GOOGLE, "SELECT 9223372036854775807 + 1"),
    (GOOGLE, "NONSENSE"),
    (GOOGLE, ""),
    (GOOGLE, "SELECT k FROM U@{FORCE_INDEX=Nope}"),
    (GOOGLE, "SELECT k FROM U LIMIT -1"),
    (POSTGRES, "SELECT * FROM nope"),
    (POSTGRES, "SELECT nope FROM u"),
    (POSTGRES, "SELECT k FROM u WHERE"),
    (POSTGRES, "SELECT 1/0"),
    (POSTGRES, "SELECT $1"),
    (POSTGRES, "NONSENSE"),
)

_WRONG_DML: tuple[tuple[Dialect, str], ...] = (
    (GOOGLE, "INSERT INTO Nope (k) VALUES (1)"),
    (GOOGLE, "INSERT INTO U (nope) VALUES (1)"),
    (GOOGLE, "INSERT INTO U (k, a) VALUES (1)"),
    (GOOGLE, "INSERT INTO U (a) VALUES ('x')"),
    (GOOGLE, "INSERT INTO U (k, k) VALUES (1, 1)"),
    (GOOGLE, "INSERT INTO U (k) VALUES (NULL)"),
    (GOOGLE, "UPDATE U SET a = 'x'"),
    (GOOGLE, "UPDATE U SET nope = 1 WHERE TRUE"),
    (GOOGLE, "UPDATE U SET k = 1 WHERE TRUE"),
    (GOOGLE, "UPDATE U SET a = 'x', a = 'y' WHERE TRUE"),
    (GOOGLE, "DELETE FROM U"),
    (GOOGLE, "DELETE FROM Nope WHERE TRUE"),
    (POSTGRES, "INSERT INTO nope (k) VALUES (1)"),
    (POSTGRES, "INSERT INTO u (nope) VALUES (1)"),
    (POSTGRES, "INSERT INTO u (a) VALUES ('x')"),
    (POSTGRES, "INSERT INTO u (k) VALUES (NULL)"),
    (POSTGRES, "UPDATE u SET nope = 1 WHERE true"),
    (POSTGRES, "UPDATE u SET k = 1 WHERE true"),
    (POSTGRES, "DELETE FROM nope WHERE true"),
)


def _query_cases() -> Iterator[Case]:
    made = (Ask("ddl", _TABLES[GOOGLE][0]), Ask("ddl", "CREATE CHANGE STREAM S FOR U"))
    for name, text, bound in _QUERIES:
        yield Case(f"google query: {name}", GOOGLE, (*made, Ask("stream", text, bound)))
    text = f"SELECT ChangeRecord FROM READ_S({_ALL})"
    yield Case("google query: ExecuteSql", GOOGLE, (*made, Ask("sql", text, _bound())))
    within = Ask("stream", text, _bound(), in_transaction=True)
    yield Case("google query: in a transaction", GOOGLE, (*made, within))
    bad = Ask("stream", text, _bound(heartbeat="1"), in_transaction=True)
    yield Case("google query: bad and in a transaction", GOOGLE, (*made, bad))
    made = (Ask("ddl", _TABLES[POSTGRES][0]), Ask("ddl", "CREATE CHANGE STREAM s FOR u"))
    for name, text, bound in _POSTGRES_QUERIES:
        values = bound or _bound()
        numbered = {f"p{n}": one for n, one in enumerate(values.values(), start=1)}
        yield Case(f"postgres query: {name}", POSTGRES, (*made, Ask("stream", text, numbered)))
    for dialect, text in _WRONG_SQL:
        asks = tuple(Ask("ddl", one) for one in _TABLES[dialect])
        yield Case(f"{dialect} SQL", dialect, (*asks, Ask("sql", text)))
    for dialect, text in _WRONG_DML:
        asks = tuple(Ask("ddl", one) for one in _TABLES[dialect])
        yield Case(f"{dialect} DML", dialect, (*asks, Ask("sql", text, in_transaction=True)))


CASES: tuple[Case, ...] = (*_ddl_cases(), *_query_cases())
