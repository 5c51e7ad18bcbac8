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


UNEXPECTED = "INVALID_ARGUMENT Error parsing Spanner DDL statement: {} : {}"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "version_retention_period = 5",
            (
                "Unexpected value for option: version_retention_period. Supported values are "
                "non-empty strings only."
            ),
        ),
        (
            "default_leader = 5",
            (
                "Unexpected value for option: default_leader. Supported option values are strings "
                "and NULL."
            ),
        ),
        (
            "optimizer_version = 'abc'",
            (
                "Unexpected value for option: optimizer_version. Supported option values are "
                "integers and NULL."
            ),
        ),
        ("version_retention_period = ''", "Invalid string literal: ''"),
        ("nonsense = NULL", "Option: nonsense is unknown."),
    ],
)
def test_an_option_of_another_kind_is_refused(make, option: str, message: str) -> None:
    statement = f"ALTER DATABASE d SET OPTIONS ({option})"

    assert make().refusal(statement) == UNEXPECTED.format(statement, message)


@pytest.mark.parametrize(
    ("option", "refusal"),
    [
        ("default_leader = 5", "FAILED_PRECONDITION Incorrect datatype specified for option."),
        ("optimizer_version = 'a'", "FAILED_PRECONDITION Incorrect datatype specified for option."),
        ("nonsense = 1", "FAILED_PRECONDITION Invalid Alter Database Option: spanner.nonsense."),
    ],
)
def test_postgresql_refuses_them_too(make, option: str, refusal: str) -> None:
    made = make(dialect="POSTGRESQL")

    assert made.refusal(f"ALTER DATABASE d SET spanner.{option}") == refusal


def test_a_time_zone_is_not_accepted_as_queries_would_not_heed_it(make) -> None:
    refusal = "UNIMPLEMENTED The simulator does not support: database option default_time_zone"

    assert make().refusal("ALTER DATABASE d SET OPTIONS (default_time_zone = 'UTC')") == refusal
    assert (
        make(dialect="POSTGRESQL").refusal("ALTER DATABASE d SET spanner.default_time_zone = 'UTC'")
        == refusal
    )
