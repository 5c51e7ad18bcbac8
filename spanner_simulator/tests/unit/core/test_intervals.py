from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.intervals import normalise_interval


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("P1Y2M3DT4H5M6.5S", "P1Y2M3DT4H5M6.5S"),
        ("P14M", "P1Y2M"),
        ("P-14M", "P-1Y-2M"),
        ("P1Y-2M", "P10M"),
        ("P2W", "P14D"),
        ("PT3661S", "PT1H1M1S"),
        ("PT-0.000000001S", "PT-0.000000001S"),
        ("PT1,5S", "PT1.5S"),
        ("P0D", "P0Y"),
        ("P1D", "P1D"),
    ],
)
def test_normal_forms(text: str, normal: str) -> None:
    assert normalise_interval(text) == normal


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "1Y", "P1", "P1H", "PTS", "P1.5Y", "P10001Y", "P3660001D", "PT1.0000000001S"],
)
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        normalise_interval(text)


@given(
    st.integers(-120_000, 120_000),
    st.integers(-3_660_000, 3_660_000),
    st.decimals(-(10**11), 10**11, places=9),
)
def test_a_normal_form_is_stable(months: int, days: int, seconds: object) -> None:
    normal = normalise_interval(f"P{months}M{days}DT{seconds:f}S")

    assert normalise_interval(normal) == normal
