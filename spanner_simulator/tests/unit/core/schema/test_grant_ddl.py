from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.schema.grant_ddl import create_role, drop_role, grant
from spanner_simulator.core.schema.statements import CreateRole, DropRole, Grant
from spanner_simulator.errors import Code, SpannerError


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "SELECT ON CHANGE STREAM S TO ROLE r",
            Grant(False, ("SELECT",), "CHANGE STREAM", ("S",), ("r",)),
        ),
        (
            "EXECUTE ON TABLE FUNCTION READ_S, READ_T TO ROLE r",
            Grant(False, ("EXECUTE",), "TABLE FUNCTION", ("READ_S", "READ_T"), ("r",)),
        ),
        (
            "INSERT, UPDATE ON TABLE s.T, U TO ROLE a, b",
            Grant(False, ("INSERT", "UPDATE"), "TABLE", ("s.T", "U"), ("a", "b")),
        ),
        ("USAGE ON SCHEMA s TO ROLE a", Grant(False, ("USAGE",), "SCHEMA", ("s",), ("a",))),
        ("SELECT ON VIEW V TO ROLE a", Grant(False, ("SELECT",), "VIEW", ("V",), ("a",))),
        ("ROLE a TO ROLE b", Grant(False, ("MEMBER",), "ROLE", ("a",), ("b",))),
    ],
)
def test_googlesql(text: str, statement: Grant) -> None:
    assert grant(DdlWords(text, "GOOGLE_STANDARD_SQL"), revoke=False) == statement


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "SELECT ON CHANGE STREAM s FROM r",
            Grant(True, ("SELECT",), "CHANGE STREAM", ("s",), ("r",)),
        ),
        (
            "EXECUTE ON FUNCTION spanner.read_json_s FROM r",
            Grant(True, ("EXECUTE",), "TABLE FUNCTION", ("read_json_s",), ("r",)),
        ),
        (
            'SELECT ON public."T", U FROM a',
            Grant(True, ("SELECT",), "TABLE", ("T", "u"), ("a",)),
        ),
        ("a, b FROM c", Grant(True, ("MEMBER",), "ROLE", ("a", "b"), ("c",))),
    ],
)
def test_postgresql(text: str, statement: Grant) -> None:
    assert grant(DdlWords(text, "POSTGRESQL"), revoke=True) == statement


def test_roles() -> None:
    google = "GOOGLE_STANDARD_SQL"

    assert create_role(DdlWords("IF NOT EXISTS r", google)) == CreateRole("r", if_not_exists=True)
    assert drop_role(DdlWords("IF EXISTS r", google)) == DropRole("r", if_exists=True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT (a) ON TABLE T TO ROLE r", "privileges on single columns"),
        ("ALL PRIVILEGES ON TABLE T TO ROLE r", "ALL PRIVILEGES"),
        ("SELECT ON ALL TABLES IN SCHEMA s TO ROLE r", "privileges on ALL .."),
    ],
)
def test_what_is_not_supported_is_named(text: str, what: str) -> None:
    with pytest.raises(SpannerError) as caught:
        grant(DdlWords(text, "GOOGLE_STANDARD_SQL"), revoke=False)

    assert caught.value.code is Code.UNIMPLEMENTED
    assert caught.value.message == f"The simulator does not support: {what}"
