from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.json_text import normalise_json, normalise_jsonb

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


# Learnt from Google's emulator 1.5.28.
@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ('{"b":1,"a":2,"b":3}', '{"a":2,"b":1}'),
        ('{"a":1.50,"b":100000000000000.0}', '{"a":1.5,"b":100000000000000.0}'),
        ("[1e15, -1.5e15, 1e16, 1e-7]", "[1e+15,-1.5e+15,1e+16,1e-07]"),
        ("1E5", "100000.0"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        (
            "[-9223372036854775808, -9223372036854775809]",
            "[-9223372036854775808,-9.223372036854776e+18]",
        ),
        ("18446744073709551615", "18446744073709551615"),
        (' "a\\/b\\u00e9\\n\\ud83d\\ude00" ', '"a/bé\\n😀"'),
    ],
)
def test_json(text: str, normal: str) -> None:
    assert normalise_json(text) == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ('{"b":1.50,"aa":1e2,"a":[1, 2.0],"b":2}', '{"a": [1, 2.0], "b": 2, "aa": 100}'),
        (
            '{"x":1.500e1, "y":-0, "z":12345678901234567890123.10}',
            '{"x": 15.00, "y": 0, "z": 12345678901234567890123.10}',
        ),
        ("1e400", "1" + "0" * 400),
        ('{"a":{}}', '{"a": {}}'),
        ("null", "null"),
    ],
)
def test_jsonb(text: str, normal: str) -> None:
    assert normalise_jsonb(text) == normal


@pytest.mark.parametrize(
    "text", ["{", "NaN", '["\\ud83d"]', "", "[" * 81 + "]" * 81, "[" * 100_000, "1 2"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    for normalise in (normalise_json, normalise_jsonb):
        with pytest.raises(ValueError, match=r"."):
            normalise(text)


def test_a_number_that_no_double_holds_is_only_for_jsonb() -> None:
    with pytest.raises(ValueError, match="range"):
        normalise_json("1e400")
    with pytest.raises(ValueError, match="digits"):
        normalise_jsonb("1e200000")


@given(DOCUMENTS)
def test_normalising_keeps_the_document_and_is_stable(document: object) -> None:
    text = json.dumps(document)
    for normalise in (normalise_json, normalise_jsonb):
        normal = normalise(text)
        assert json.loads(normal) == document
        assert normalise(normal) == normal
