from __future__ import annotations

import pytest

from spanner_simulator.core.schema.information_schema.rows import located, option, split


def test_names_are_taken_apart() -> None:
    assert split("ns.T") == ("ns", "T")
    assert located("T", "index") == {
        "index_catalog": "",
        "index_schema": "",
        "index_name": "T",
    }


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(True, "BOOL", "TRUE"), (4, "INT64", "4"), ("x", "STRING", "x")],
)
def test_options_have_types(value: object, kind: str, text: str) -> None:
    assert option("o", value) == {"option_name": "o", "option_type": kind, "option_value": text}
