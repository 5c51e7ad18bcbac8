from __future__ import annotations

import pytest

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.duck import Duck
from spanner_simulator.sql.open_duck import open_duck


@pytest.fixture(scope="module", name="duck")
def duck_fixture():
    duck = Duck()
    yield duck
    duck.close()


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", None, None),
        ("COPY (SELECT 1) TO '/tmp/written-by-duckdb'", None, None),
        ("INSTALL httpfs", None, None),
        ("SET enable_external_access = true", None, None),
        ("SELEC 1", Code.UNIMPLEMENTED, "The simulator does not support: this query"),
        ("SELECT CAST(9223372036854775807 AS BIGINT) + 1", Code.OUT_OF_RANGE, "int64 overflow"),
        ("SELECT CAST(1 AS BIGINT) // 0", Code.OUT_OF_RANGE, "division by zero: 1 / 0"),
        ("SELECT CAST('x' AS BIGINT)", Code.OUT_OF_RANGE, "int64 overflow"),
        ("SELECT refuse('no ' || 'way')", Code.OUT_OF_RANGE, "no way"),
        ("SELECT a, count(*) FROM (SELECT 1 AS a, 2 AS b) GROUP BY b", Code.INVALID_ARGUMENT,
         "neither grouped nor aggregated"),
        ("SELECT (SELECT unnest([1, 2]))", Code.OUT_OF_RANGE, "More than one element"),
    ],
)  # fmt: skip
def test_failures_leave_in_spanner_s_words(duck, sql, code, message) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        duck.run(sql, {}, {})
    assert code is None or caught.value.code is code
    assert duck.run("SELECT 1", {}, {}) == [(1,)]


def test_nothing_of_a_statement_stays(duck) -> None:
    with pytest.raises(SpannerError):
        duck.run("SELECT refuse('x') FROM raw1", {}, {"raw1": ({}, [{}])})
    with pytest.raises(SpannerError, match="raw1"):
        duck.run("SELECT * FROM raw1", {}, {})
    assert open_duck() is open_duck()
