from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AlterProtoBundle,
    CreateProtoBundle,
    CreateTable,
    DropProtoBundle,
    Statement,
)
from spanner_simulator.errors import SpannerError


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("CREATE PROTO BUNDLE (a.b.C)", CreateProtoBundle(("a.b.C",))),
        ("CREATE PROTO BUNDLE (`a.C`, a.`D`, E,)", CreateProtoBundle(("a.C", "a.D", "E"))),
        ("CREATE PROTO BUNDLE (a.order.set)", CreateProtoBundle(("a.order.set",))),
        ("ALTER PROTO BUNDLE", AlterProtoBundle()),
        ("ALTER PROTO BUNDLE UPDATE (a.B)", AlterProtoBundle(updated=("a.B",))),
        (
            "ALTER PROTO BUNDLE INSERT (A, B) UPDATE (C) DELETE (D)",
            AlterProtoBundle(("A", "B"), ("C",), ("D",)),
        ),
        ("DROP PROTO BUNDLE", DropProtoBundle()),
    ],
)
def test_bundles(text: str, statement: Statement) -> None:
    assert parse_ddl(text) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE PROTO BUNDLE ()", "Encountered ')' while parsing: identifier"),
        ("ALTER PROTO BUNDLE DELETE (A) INSERT (B)", "Expecting 'EOF' but found 'INSERT'"),
        ("CREATE TABLE T (a PROTO<x.Y>) PRIMARY KEY ()", "'PROTO' while parsing: column_type"),
        ("CREATE TABLE T (a x.Y(5)) PRIMARY KEY ()", "Expecting ')' but found '('"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(SpannerError, match=message.replace("(", r"\(").replace(")", r"\)")):
        parse_ddl(text)


def test_columns_name_their_types_in_any_spelling() -> None:
    statement = parse_ddl(
        "CREATE TABLE T (a x.Y, b `x.Y`, c x.`Y`, d ARRAY<x.Y>, e Bare, f STRING.x) PRIMARY KEY ()"
    )
    assert isinstance(statement, CreateTable)
    names = [
        (column.value_type.element or column.value_type).proto_name for column in statement.columns
    ]

    assert names == ["x.Y", "x.Y", "x.Y", "x.Y", "Bare", "STRING.x"]
