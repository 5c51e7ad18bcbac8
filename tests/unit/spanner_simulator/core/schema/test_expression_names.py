from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.schema.expression_names import column_names, object_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("UPPER(Name) || `b`", {"name", "b"}),
        ("T.a + 1", {"a"}),
        ("DATE '2024-01-01'", set()),
        ("CAST(a AS date)", {"a"}),
        ("DATE_ADD(a, INTERVAL 1 day)", {"a"}),
        ("'b' -- c", set()),
    ],
)
def test_columns_of_googlesql(expression: str, names: set[str]) -> None:
    assert column_names(expression, "GOOGLE_STANDARD_SQL") == names


def test_columns_of_postgresql() -> None:
    assert column_names("\"A\" || b::text || 'c'", "POSTGRESQL") == {"a", "b"}


def test_objects_have_their_schema() -> None:
    google = object_names("SELECT t.a FROM ns.T AS t, `U`", "GOOGLE_STANDARD_SQL")
    postgres = object_names("select a from public.t", "POSTGRESQL")

    assert {"ns.t", "u"} <= google
    assert "t" in postgres
