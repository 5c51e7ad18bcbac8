from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.schema.postgres_types import column_type
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError

NUMERIC = ValueType("NUMERIC", annotation="PG_NUMERIC")


@pytest.mark.parametrize(
    ("text", "value_type"),
    [
        ("bigint", ValueType("INT64")),
        ("int8", ValueType("INT64")),
        ("boolean", ValueType("BOOL")),
        ("real", ValueType("FLOAT32")),
        ("double precision", ValueType("FLOAT64")),
        ("numeric", NUMERIC),
        ("varchar(9)", ValueType("STRING", None, 9)),
        ("character varying", ValueType("STRING")),
        ("TEXT", ValueType("STRING")),
        ("bytea", ValueType("BYTES")),
        ("timestamptz", ValueType("TIMESTAMP")),
        ("timestamp with time zone", ValueType("TIMESTAMP")),
        ("jsonb", ValueType("JSON", annotation="PG_JSONB")),
        ("uuid", ValueType("UUID")),
        ("interval", ValueType("INTERVAL")),
        ("numeric[]", ValueType("ARRAY", NUMERIC)),
        ("varchar(3)[2]", ValueType("ARRAY", ValueType("STRING", None, 3))),
        ("date array", ValueType("ARRAY", ValueType("DATE"))),
    ],
)
def test_types(text: str, value_type: ValueType) -> None:
    words = DdlWords(text, "POSTGRESQL")

    assert column_type(words) == (value_type, False)
    words.expect_end()


def test_a_commit_timestamp_is_a_type() -> None:
    words = DdlWords("spanner.commit_timestamp", "POSTGRESQL")

    assert column_type(words) == (ValueType("TIMESTAMP"), True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int4", "Type <int4> is not supported; use bigint or int8 instead."),
        ("smallint", "Type <int2> is not supported; use bigint or int8 instead."),
        ("timestamp", "Type <timestamp> is not supported."),
        ("timestamp without time zone", "Type <timestamp> is not supported."),
        ("json", "Type <json> is not supported; use jsonb instead."),
        ("char(3)", "Type <bpchar> is not supported."),
        ("money", "Type <money> is not supported; use numeric or decimal instead."),
        ("time", "Type <time> is not supported."),
        ("bigserial", "Type <bigserial> is not supported; use bigint or int8 instead."),
        ("nope", "Type <nope> does not exist."),
        ("numeric(10, 2)", "Type modifier is not supported for type <numeric>."),
        ("varchar(2621441)", "Maximum length for <varchar> fields is 2621440."),
        ("bigint[][]", "Multi-dimensional arrays are not supported."),
    ],
)
def test_what_spanner_has_not(text: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        column_type(DdlWords(text, "POSTGRESQL"))

    assert (caught.value.code, caught.value.message) == (Code.FAILED_PRECONDITION, message)
