"""Timestamps from Spanner and from operators: nanoseconds that can be printed, or refused."""

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.translation.values import converter
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

NEARLY = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,10})?"
    r"(Z|z|[+-][0-9]{2}:[0-9]{2})?",
    fullmatch=True,
)


@given(st.text() | NEARLY)
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59-23:59")
@example("2024-06-30T23:59:60Z")
@example("2024-01-01T24:00:00Z")
def test_any_text(assert_reportable, text):
    try:
        instant_ns = parse_rfc3339_ns(text)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert parse_rfc3339_ns(format_rfc3339(instant_ns)) == instant_ns


@given(st.sampled_from(["TIMESTAMP", "DATE"]), st.text() | NEARLY | NEARLY.map(lambda t: t[:10]))
def test_any_value_of_a_column(assert_reportable, code, text):
    try:
        number = converter(ColumnType(code))(text)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert -(2**63) <= number < 2**63


@given(st.text() | NEARLY)
@example("0001-01-01T00:00:00-23:59")
@example("2024-01-02t03:04:05.000000000z")
def test_any_timestamp_as_text(assert_reportable, text):
    convert = converter(ColumnType("TIMESTAMP"), TimestampForm.STRING)
    try:
        carried = convert(text)
    except SchemaError as error:
        assert_reportable(error)
    else:
        assert parse_rfc3339_ns(carried) == parse_rfc3339_ns(text)
        assert convert(carried) == carried
        assert (carried[10], carried[-1]) == ("T", "Z")
