"""Functions, operators and aggregates of both dialects, one signature per line (`signatures`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spanner_simulator.sql.function_tables.signatures import Signature, read_signatures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanner_simulator.core.values import Dialect


_BOTH = """
+(INT64, INT64) -> INT64 = ({0} + {1})
+(FLOAT64, FLOAT64) -> FLOAT64 = double_checked({0} + {1}, {0}, '+', {1})
-(INT64, INT64) -> INT64 = ({0} - {1})
-(FLOAT64, FLOAT64) -> FLOAT64 = double_checked({0} - {1}, {0}, '-', {1})
*(INT64, INT64) -> INT64 = ({0} * {1})
*(FLOAT64, FLOAT64) -> FLOAT64 = double_checked({0} * {1}, {0}, '*', {1})
/(FLOAT64, FLOAT64) -> FLOAT64 = double_quotient({0}, {1})
-(INT64) -> INT64 = int_negative({0})
-(FLOAT64) -> FLOAT64 = (-{0})
||(STRING, STRING) -> STRING = ({0} || {1})
||(BYTES, BYTES) -> BYTES = ({0} || {1})
||(ARRAY<ANY>, ARRAY<ANY>) -> ARRAY<ANY> = ({0} || {1})
LIKE(STRING, STRING) -> BOOL = ({0} LIKE {1} ESCAPE '\\')
ABS(INT64) -> INT64 = int_absolute({0})
ABS(FLOAT64) -> FLOAT64
MOD(INT64, INT64) -> INT64 = int_rest({0}, {1})
DIV(INT64, INT64) -> INT64 = int_quotient({0}, {1})
TRUNC(FLOAT64) -> FLOAT64
CEIL(FLOAT64) -> FLOAT64
FLOOR(FLOAT64) -> FLOAT64
COALESCE(ANY...) -> ANY = coalesce({*})
GENERATE_UUID() -> STRING
STARTS_WITH(STRING, STRING) -> BOOL
LENGTH(STRING) -> INT64 = length({0})
LENGTH(BYTES) -> INT64 = octet_length({0})
CHAR_LENGTH(STRING) -> INT64 = length({0})
UPPER(STRING) -> STRING
LOWER(STRING) -> STRING
TRIM(STRING, STRING) -> STRING
LTRIM(STRING, STRING) -> STRING
RTRIM(STRING, STRING) -> STRING
REPLACE(STRING, STRING, STRING) -> STRING = replace_every({0}, {1}, {2})
STRPOS(STRING, STRING) -> INT64
LEFT(STRING, INT64) -> STRING
RIGHT(STRING, INT64) -> STRING
CURRENT_TIMESTAMP() -> TIMESTAMP = {now}
CURRENT_DATE() -> DATE = timestamp_date({now}, {zone})
ARRAY_TO_STRING(ARRAY<STRING>, STRING) -> STRING
@COUNT(ANY) -> INT64 = count({args})
@SUM(FLOAT64) -> FLOAT64 = sum({args})
@AVG(FLOAT64) -> FLOAT64 = avg({args})
@ARRAY_AGG(ANY) -> ARRAY<ANY> = list({args})
@STRING_AGG(STRING, STRING) -> STRING = string_agg({args})
"""
_GOOGLE = r"""
+(NUMERIC, NUMERIC) -> NUMERIC = numeric_computed({0}, '+', {1})
-(NUMERIC, NUMERIC) -> NUMERIC = numeric_computed({0}, '-', {1})
*(NUMERIC, NUMERIC) -> NUMERIC = numeric_computed({0}, '*', {1})
/(NUMERIC, NUMERIC) -> NUMERIC = numeric_computed({0}, '/', {1})
-(NUMERIC) -> NUMERIC = (-{0})
ABS(NUMERIC) -> NUMERIC
MOD(NUMERIC, NUMERIC) -> NUMERIC = numeric_computed({0}, '%', {1})
ROUND(FLOAT64) -> FLOAT64
ROUND(FLOAT64, INT64) -> FLOAT64 = round({0}, CAST({1} AS INTEGER))
ROUND(NUMERIC) -> NUMERIC = numeric_round({0}, 0)
ROUND(NUMERIC, INT64) -> NUMERIC = numeric_round({0}, {1})
GREATEST(ORDERED, ORDERED...) -> ORDERED = CASE WHEN {anynull} THEN NULL ELSE greatest({*}) END
LEAST(ORDERED, ORDERED...) -> ORDERED = CASE WHEN {anynull} THEN NULL ELSE least_of([{*}]) END
IFNULL(ANY, ANY) -> ANY = coalesce({0}, {1})
NULLIF(ANY, ANY) -> ANY
NEW_UUID() -> UUID = generate_uuid()
ENDS_WITH(STRING, STRING) -> BOOL = suffix({0}, {1})
SUBSTR(STRING, INT64) -> STRING = text_part({0}, {1}, CAST(9999999999 AS BIGINT))
SUBSTR(STRING, INT64, INT64) -> STRING = text_part({0}, {1}, {2})
SUBSTRING(STRING, INT64) -> STRING = text_part({0}, {1}, CAST(9999999999 AS BIGINT))
SUBSTRING(STRING, INT64, INT64) -> STRING = text_part({0}, {1}, {2})
BYTE_LENGTH(STRING) -> INT64 = strlen({0})
BYTE_LENGTH(BYTES) -> INT64 = octet_length({0})
TRIM(STRING) -> STRING = regexp_replace({0}, '^[\s\pZ]+|[\s\pZ]+$', '', 'g')
LTRIM(STRING) -> STRING = regexp_replace({0}, '^[\s\pZ]+', '')
RTRIM(STRING) -> STRING = regexp_replace({0}, '[\s\pZ]+$', '')
CONCAT(STRING...) -> STRING = ({||})
CONCAT(BYTES...) -> BYTES = ({||})
SPLIT(STRING) -> ARRAY<STRING> = string_split({0}, ',')
SPLIT(STRING, STRING) -> ARRAY<STRING> = string_split({0}, {1})
TO_HEX(BYTES) -> STRING = lower(hex({0}))
TO_BASE64(BYTES) -> STRING
SHA256(STRING) -> BYTES = unhex(sha256({0}))
SHA256(BYTES) -> BYTES = unhex(sha256({0}))
REGEXP_CONTAINS(STRING, STRING) -> BOOL = regexp_matches({0}, {1})
CURRENT_DATE(STRING) -> DATE = timestamp_date({now}, {0})
TIMESTAMP_ADD(TIMESTAMP, INTERVAL) -> TIMESTAMP = timestamp_add({0}, {1.count}, {1.part})
TIMESTAMP_SUB(TIMESTAMP, INTERVAL) -> TIMESTAMP = timestamp_add({0}, -({1.count}), {1.part})
TIMESTAMP_DIFF(TIMESTAMP, TIMESTAMP, PART) -> INT64 = timestamp_diff({0}, {1}, {2})
TIMESTAMP_TRUNC(TIMESTAMP, PART) -> TIMESTAMP = timestamp_trunc({0}, {1}, {zone})
TIMESTAMP_TRUNC(TIMESTAMP, PART, STRING) -> TIMESTAMP = timestamp_trunc({0}, {1}, {2})
UNIX_SECONDS(TIMESTAMP) -> INT64 = timestamp_unix({0}, 1000000000)
UNIX_MILLIS(TIMESTAMP) -> INT64 = timestamp_unix({0}, 1000000)
UNIX_MICROS(TIMESTAMP) -> INT64 = timestamp_unix({0}, 1000)
TIMESTAMP_SECONDS(INT64) -> TIMESTAMP = timestamp_of_unix({0}, 1000000000)
TIMESTAMP_MILLIS(INT64) -> TIMESTAMP = timestamp_of_unix({0}, 1000000)
TIMESTAMP_MICROS(INT64) -> TIMESTAMP = timestamp_of_unix({0}, 1000)
STRING(TIMESTAMP) -> STRING = timestamp_text({0}, {zone})
STRING(TIMESTAMP, STRING) -> STRING = timestamp_text({0}, {1})
DATE(TIMESTAMP) -> DATE = timestamp_date({0}, {zone})
DATE(TIMESTAMP, STRING) -> DATE = timestamp_date({0}, {1})
DATE_ADD(DATE, INTERVAL) -> DATE = date_add_part({0}, {1.count}, {1.part})
DATE_SUB(DATE, INTERVAL) -> DATE = date_add_part({0}, -({1.count}), {1.part})
DATE_DIFF(DATE, DATE, PART) -> INT64 = date_diff_part({0}, {1}, {2})
DATE_TRUNC(DATE, PART) -> DATE = date_trunc_part({0}, {1})
PARSE_JSON(STRING) -> JSON = json_normal({0})
TO_JSON_STRING(JSON) -> STRING = {0}
JSON_VALUE(JSON) -> STRING = json_scalar({0}, '$')
JSON_VALUE(JSON, STRING) -> STRING = json_scalar({0}, {1})
JSON_QUERY(JSON) -> JSON = json_query({0}, '$')
JSON_QUERY(JSON, STRING) -> JSON = json_query({0}, {1})
ARRAY_LENGTH(ARRAY<ANY>) -> INT64 = len({0})
ARRAY_CONCAT(ARRAY<ANY>, ARRAY<ANY>...) -> ARRAY<ANY> = ({||})
GENERATE_ARRAY(INT64, INT64) -> ARRAY<INT64> = generate_series({0}, {1})
@COUNTIF(BOOL) -> INT64 = CAST(count_if({args}) AS BIGINT)
@SUM(INT64) -> INT64 = CAST(sum({args}) AS BIGINT)
@SUM(NUMERIC) -> NUMERIC = CAST(sum({args}) AS DECIMAL(38,9))
@AVG(INT64) -> FLOAT64 = avg({args})
@AVG(NUMERIC) -> NUMERIC = numeric_average(sum({args}), count({args}))
@MIN(ORDERED) -> ORDERED = least_of(list({args}))
@MAX(ORDERED) -> ORDERED = max({args})
@ANY_VALUE(ANY) -> ANY = any_value({args})
@LOGICAL_AND(BOOL) -> BOOL = bool_and({args})
@LOGICAL_OR(BOOL) -> BOOL = bool_or({args})
"""
_POSTGRES = """
+(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_computed({0}, '+', {1})
+(DATE, INT64) -> DATE = date_add_part({0}, {1}, 'DAY')
-(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_computed({0}, '-', {1})
-(DATE, INT64) -> DATE = date_add_part({0}, -({1}), 'DAY')
-(DATE, DATE) -> INT64 = date_diff_part({0}, {1}, 'DAY')
*(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_computed({0}, '*', {1})
/(INT64, INT64) -> INT64 = int_quotient({0}, {1})
/(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_computed({0}, '/', {1})
%(INT64, INT64) -> INT64 = int_rest({0}, {1})
%(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_computed({0}, '%', {1})
-(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_computed('0', '-', {0})
GREATEST(PG_NUMERIC, PG_NUMERIC...) -> PG_NUMERIC = pg_numeric_aggregate([{*}], 'max')
GREATEST(ORDERED, ORDERED...) -> ORDERED = greatest({*})
LEAST(PG_NUMERIC, PG_NUMERIC...) -> PG_NUMERIC = pg_numeric_aggregate([{*}], 'min')
LEAST(ORDERED, ORDERED...) -> ORDERED = least({*})
NULLIF(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_unless({0}, {1})
NULLIF(ANY, ANY) -> ANY
GEN_RANDOM_UUID() -> UUID = generate_uuid()
SUBSTR(STRING, INT64) -> STRING = substring({0}, greatest({1}, 1))
SUBSTR(STRING, INT64, INT64) -> STRING = pg_part({0}, {1}, {2})
SUBSTRING(STRING, INT64) -> STRING = substring({0}, greatest({1}, 1))
SUBSTRING(STRING, INT64, INT64) -> STRING = pg_part({0}, {1}, {2})
TRIM(STRING) -> STRING = trim({0}, ' ')
LTRIM(STRING) -> STRING = ltrim({0}, ' ')
RTRIM(STRING) -> STRING = rtrim({0}, ' ')
CONCAT(STRING...) -> STRING = concat({*})
NOW() -> TIMESTAMP = {now}
DATE_TRUNC(STRING, TIMESTAMP) -> TIMESTAMP = timestamp_trunc({1}, upper({0}), {zone})
DATE_TRUNC(STRING, TIMESTAMP, STRING) -> TIMESTAMP = timestamp_trunc({1}, upper({0}), {2})
ARRAY_LENGTH(ARRAY<ANY>, INT64) -> INT64 = CASE WHEN {1} = 1 AND len({0}) > 0 THEN len({0}) END
@SUM(INT64) -> PG_NUMERIC = CAST(sum({args}) AS VARCHAR)
@SUM(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_aggregate(list({args}), 'sum')
@AVG(INT64) -> PG_NUMERIC = pg_integer_average(sum({args}), count({args}))
@AVG(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_aggregate(list({args}), 'avg')
@MIN(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_aggregate(list({args}), 'min')
@MAX(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_aggregate(list({args}), 'max')
@MIN(ORDERED) -> ORDERED = min({args})
@MAX(ORDERED) -> ORDERED = max({args})
@BOOL_AND(BOOL) -> BOOL = bool_and({args})
@BOOL_OR(BOOL) -> BOOL = bool_or({args})
"""

FUNCTIONS: Final[Mapping[Dialect, Mapping[str, tuple[Signature, ...]]]] = {
    "GOOGLE_STANDARD_SQL": read_signatures(_BOTH + _GOOGLE),
    "POSTGRESQL": read_signatures(_BOTH + _POSTGRES),
}
