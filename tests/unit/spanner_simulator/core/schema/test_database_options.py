from __future__ import annotations

import pytest

HOUR_US = 3_600_000_000


def test_options_are_kept_and_reset(make) -> None:
    made = make(
        "ALTER DATABASE d SET OPTIONS (version_retention_period = '2d', optimizer_version = 4)",
    )

    assert made.catalogue.options == {"version_retention_period": "2d", "optimizer_version": 4}
    assert made.catalogue.version_retention_us == 48 * HOUR_US
    made.apply("ALTER DATABASE d SET OPTIONS (version_retention_period = NULL)")
    assert made.catalogue.version_retention_us == HOUR_US
    assert made.ddl() == ["ALTER DATABASE d SET OPTIONS (optimizer_version = 4)"]


@pytest.mark.parametrize("period", ["59m", "8d"])
def test_a_retention_out_of_range_is_refused(make, period: str) -> None:
    refusal = make().refusal(
        f"ALTER DATABASE d SET OPTIONS (version_retention_period = '{period}')",
    )

    assert refusal == (
        f"FAILED_PRECONDITION Invalid version_retention_period: {period}. The version retention "
        "period must be a value in the range [1h, 7d]."
    )
