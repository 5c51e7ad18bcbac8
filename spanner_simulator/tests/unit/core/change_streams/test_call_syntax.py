from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.call_syntax import (
    Argument,
    Expression,
    LiteralValue,
    Parameter,
    find_call,
)
from spanner_simulator.core.values import Dialect

GOOGLE: Dialect = "GOOGLE_STANDARD_SQL"
POSTGRES: Dialect = "POSTGRESQL"


def argument(text: str, dialect: Dialect) -> Argument:
    schema = "spanner." if dialect == POSTGRES else ""
    call = find_call(f"SELECT * FROM {schema}read_json_s({text})", dialect)
    assert call is not None
    return call.positional[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@Token", Parameter("token")),
        ("null", LiteralValue("null", None)),
        ('"a\'b"', LiteralValue("text", "a'b")),
        ("r'a\\n'", LiteralValue("text", "a\\n")),
        ("TIMESTAMP 'x'", LiteralValue("timestamp", "x")),
        ("12", LiteralValue("integer", "12")),
        ("1.5", LiteralValue("float", "1.5")),
        ("1" * 5000, LiteralValue("integer", "1" * 5000)),
        ("['x', 'y']", LiteralValue("array", "[ 'x' , 'y' ]")),
        ("ARRAY<STRING>[]", LiteralValue("array", "ARRAY < STRING > [ ]")),
        ("@a + 1", Expression()),
        *((text, Expression()) for text in ("f(@a, 1)", "-12", "(@a)", "CAST(@a AS INT64)")),
        ("TRUE", Expression()),
    ],
)
def test_arguments(text: str, expected: Argument) -> None:
    assert argument(text, GOOGLE) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$12", Parameter("p12")),
        ("'it''s'", LiteralValue("text", "it's")),
        ("ARRAY['a']", LiteralValue("array", "ARRAY [ 'a' ]")),
        ("$1 + 1", Expression()),
        ("$1::text", Expression()),
        ("now()", Expression()),
    ],
)
def test_arguments_in_postgres(text: str, expected: Argument) -> None:
    assert argument(text, POSTGRES) == expected


def test_names_fold_as_the_dialect_says() -> None:
    google = find_call("SELECT * FROM `READ_Bank`(1)", GOOGLE)
    folded = find_call("SELECT * FROM Spanner.READ_JSON_Bank(1)", POSTGRES)
    quoted = find_call('SELECT * FROM "spanner"."read_json_Bank"(1)', POSTGRES)
    assert google is not None
    assert folded is not None
    assert quoted is not None
    assert (google.function, google.schema, google.at) == ("READ_Bank", None, 14)
    assert (folded.function, folded.schema) == ("read_json_bank", "spanner")
    assert (quoted.function, quoted.schema) == ("read_json_Bank", "spanner")


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "READ_s(1)",
        "SELECT READ_s FROM T",
        "SELECT * FROM READ_s",
        "SELECT * FROM T -- FROM READ_s(1)",
        "SELECT '''FROM READ_s(1)'''",
        "SELECT * FROM ready(1)",
        "SELECT * FROM READ_",
        "FROM FROM . read_",
        "SELECT 'unclosed FROM READ_s(1)",
    ],
)
def test_other_statements_have_no_call(sql: str) -> None:
    assert find_call(sql, GOOGLE) is None
    assert find_call(sql, POSTGRES) is None
