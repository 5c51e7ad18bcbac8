from __future__ import annotations

import pytest

from spanner_simulator.core.schema.constraint_ddl import constraint, starts_constraint
from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.schema.definitions import Check, ForeignKey
from spanner_simulator.errors import SpannerError


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("CHECK (a > 1)", None, Check("", "a > 1", is_named=False)),
        (
            "FOREIGN KEY (a, b) REFERENCES s.T (x, y) ON DELETE CASCADE",
            "f",
            ForeignKey("f", ("a", "b"), "s.T", ("x", "y"), "CASCADE"),
        ),
        (
            "FOREIGN KEY (a) REFERENCES T (x) ON DELETE NO ACTION NOT ENFORCED",
            None,
            ForeignKey("", ("a",), "T", ("x",), is_enforced=False, is_named=False),
        ),
        (
            "FOREIGN KEY (a) REFERENCES T (x) ENFORCED",
            "f",
            ForeignKey("f", ("a",), "T", ("x",)),
        ),
    ],
)
def test_constraints(text: str, name: str | None, found: Check | ForeignKey) -> None:
    words = DdlWords(text, "GOOGLE_STANDARD_SQL")

    assert constraint(words, name) == found
    words.expect_end()


@pytest.mark.parametrize(
    ("text", "is_constraint"),
    [
        ("CONSTRAINT c CHECK (a)", True),
        ("FOREIGN KEY (a)", True),
        ("CHECK (a)", True),
        ("check INT64", False),
        ("foreign INT64", False),
        ("constraint STRING(3)", False),
    ],
)
def test_a_column_may_have_such_a_name(text: str, *, is_constraint: bool) -> None:
    assert starts_constraint(DdlWords(text, "GOOGLE_STANDARD_SQL")) is is_constraint


def test_what_is_not_enforced_cannot_cascade() -> None:
    words = DdlWords(
        "FOREIGN KEY (a) REFERENCES T (x) ON DELETE CASCADE NOT ENFORCED",
        "GOOGLE_STANDARD_SQL",
    )

    with pytest.raises(SpannerError, match="ON DELETE CASCADE is not supported with NOT ENFORCED"):
        constraint(words, None)
