"""Whatever is sent as a statement is no call, or a call, or refused: never a crash."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from spanner_simulator.core.change_streams.change_stream_call import (
    is_change_stream_query,
    parse_call,
    resolve,
)
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import SpannerError

_WORDS = r"""
    SELECT * ChangeRecord FROM READ_s READ_nope read_s `READ_s` "read_json_s" spanner . "spanner"
    read_json_s read_proto_bytes_s ( ) [ ] , ; => = :: @ { } @p $1 $9 NULL 1000 1.5 -1 'x' "x"
    '''x''' '2020-01-01T00:00:00Z' TIMESTAMP start_timestamp heartbeat_milliseconds CAST AS INT64
    ARRAY < > WHERE JOIN T WITH /* */ /*@ -- # é \ ' `
"""
PIECES = st.sampled_from(_WORDS.split())
STATEMENTS = st.one_of(
    st.lists(PIECES, max_size=25).map(" ".join),
    st.lists(PIECES, max_size=25).map("".join),
    st.lists(PIECES, max_size=12).map(lambda some: f"SELECT * FROM READ_s({' '.join(some)})"),
    st.lists(PIECES, max_size=12).map(lambda some: f"{' '.join(some)} FROM READ_s(NULL)"),
    st.lists(PIECES, max_size=12).map(
        lambda some: f"SELECT * FROM spanner.read_json_s({','.join(some)})"
    ),
    st.text(max_size=60),
    st.text(max_size=30).map(lambda text: f"SELECT * FROM READ_s({text})"),
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=20), st.just("2020-01-01T00:00:00Z")
)


def catalogue(dialect: Dialect) -> Catalogue:
    made = Catalogue(dialect)
    apply_statement(made, parse_ddl("CREATE CHANGE STREAM s", dialect), now_us=1)
    return made


CATALOGUES = [catalogue("GOOGLE_STANDARD_SQL"), catalogue("POSTGRESQL")]


@settings(max_examples=400, deadline=None)
@given(
    sql=STATEMENTS,
    bound=st.dictionaries(st.sampled_from(["p", "p1", "p9"]), VALUES),
    types=st.dictionaries(
        st.sampled_from(["p", "p1"]), st.sampled_from(["INT64", "STRING", "TIMESTAMP", "JSON"])
    ),
)
def test_any_statement(sql: str, bound: dict[str, object], types: dict[str, str]) -> None:
    for made in CATALOGUES:
        if not is_change_stream_query(sql, made.dialect):
            continue
        with suppress(SpannerError):
            call = parse_call(sql, made, role="", types=types)
            resolve(call, bound, now_us=10**15)  # type: ignore[arg-type]
