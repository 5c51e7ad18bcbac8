"""PostgreSQL's functions, operators and aggregates, one signature per line (see `signatures`)."""

from __future__ import annotations

from typing import Final

from tidegate.spanner_simulator.sql.functions.signatures import read_signatures

__all__ = ["POSTGRES_FUNCTIONS"]

_TABLE = """
OP.ADD(INT64, INT64) -> INT64 = ({0} + {1})
OP.ADD(FLOAT64, FLOAT64) -> FLOAT64 = double_checked({0} + {1}, {0}, '+', {1})
OP.ADD(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_add({0}, {1})
OP.ADD(DATE, INT64) -> DATE = date_add_part({0}, {1}, 'DAY')
OP.SUB(INT64, INT64) -> INT64 = ({0} - {1})
OP.SUB(FLOAT64, FLOAT64) -> FLOAT64 = double_checked({0} - {1}, {0}, '-', {1})
OP.SUB(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_subtract({0}, {1})
OP.SUB(DATE, INT64) -> DATE = date_add_part({0}, -({1}), 'DAY')
OP.SUB(DATE, DATE) -> INT64 = date_diff_part({0}, {1}, 'DAY')
OP.MUL(INT64, INT64) -> INT64 = ({0} * {1})
OP.MUL(FLOAT64, FLOAT64) -> FLOAT64 = double_checked({0} * {1}, {0}, '*', {1})
OP.MUL(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_multiply({0}, {1})
OP.DIV(INT64, INT64) -> INT64 = ({0} // {1})
OP.DIV(FLOAT64, FLOAT64) -> FLOAT64 = double_quotient({0}, {1})
OP.DIV(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_divide({0}, {1})
OP.MOD(INT64, INT64) -> INT64 = ({0} % {1})
OP.MOD(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_mod({0}, {1})
OP.POW(FLOAT64, FLOAT64) -> FLOAT64 = double_checked(pow({0}, {1}), {0}, '^', {1})
OP.NEG(INT64) -> INT64 = (-{0})
OP.NEG(FLOAT64) -> FLOAT64 = (-{0})
OP.NEG(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_negate({0})
OP.AND(INT64, INT64) -> INT64 = ({0} & {1})
OP.OR(INT64, INT64) -> INT64 = ({0} | {1})
OP.XOR(INT64, INT64) -> INT64 = xor({0}, {1})
OP.NOT(INT64) -> INT64 = (~{0})
OP.SHL(INT64, INT64) -> INT64 = ({0} << {1})
OP.SHR(INT64, INT64) -> INT64 = ({0} >> {1})
OP.CONCAT(STRING, STRING) -> STRING = ({0} || {1})
OP.CONCAT(BYTES, BYTES) -> BYTES = ({0} || {1})
OP.CONCAT(ARRAY<ANY>, ARRAY<ANY>) -> ARRAY<ANY> = ({0} || {1})
OP.LIKE(STRING, STRING) -> BOOL = ({0} LIKE {1} ESCAPE '\\')
OP.REGEXP(STRING, STRING) -> BOOL = regexp_matches({0}, {1})
ABS(INT64) -> INT64
ABS(FLOAT64) -> FLOAT64
ABS(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_abs({0})
SIGN(FLOAT64) -> FLOAT64 = CAST(sign({0}) AS DOUBLE)
MOD(INT64, INT64) -> INT64 = ({0} % {1})
MOD(PG_NUMERIC, PG_NUMERIC) -> PG_NUMERIC = pg_numeric_mod({0}, {1})
DIV(INT64, INT64) -> INT64 = ({0} // {1})
ROUND(FLOAT64) -> FLOAT64 = double_half_even({0})
TRUNC(FLOAT64) -> FLOAT64
CEIL(FLOAT64) -> FLOAT64
CEILING(FLOAT64) -> FLOAT64 = ceil({0})
FLOOR(FLOAT64) -> FLOAT64
SQRT(FLOAT64) -> FLOAT64
EXP(FLOAT64) -> FLOAT64
LN(FLOAT64) -> FLOAT64
POW(FLOAT64, FLOAT64) -> FLOAT64
POWER(FLOAT64, FLOAT64) -> FLOAT64 = pow({0}, {1})
GREATEST(ORDERED, ORDERED...) -> ORDERED = greatest({*})
LEAST(ORDERED, ORDERED...) -> ORDERED = least({*})
COALESCE(ANY...) -> ANY = coalesce({*})
NULLIF(ANY, ANY) -> ANY
SPANNER.GENERATE_UUID() -> STRING = generate_uuid()
GENERATE_UUID() -> STRING
GEN_RANDOM_UUID() -> UUID = generate_uuid()
STARTS_WITH(STRING, STRING) -> BOOL
SUBSTR(STRING, INT64) -> STRING = pg_part({0}, {1}, CAST(9999999999 AS BIGINT))
SUBSTR(STRING, INT64, INT64) -> STRING = pg_part({0}, {1}, {2})
SUBSTRING(STRING, INT64) -> STRING = pg_part({0}, {1}, CAST(9999999999 AS BIGINT))
SUBSTRING(STRING, INT64, INT64) -> STRING = pg_part({0}, {1}, {2})
LENGTH(STRING) -> INT64 = length({0})
LENGTH(BYTES) -> INT64 = octet_length({0})
CHAR_LENGTH(STRING) -> INT64 = length({0})
OCTET_LENGTH(STRING) -> INT64 = strlen({0})
UPPER(STRING) -> STRING
LOWER(STRING) -> STRING
TRIM(STRING) -> STRING = trim_set({0}, ' ')
TRIM(STRING, STRING) -> STRING = trim_set({0}, {1})
BTRIM(STRING) -> STRING = trim_set({0}, ' ')
BTRIM(STRING, STRING) -> STRING = trim_set({0}, {1})
LTRIM(STRING) -> STRING = ltrim_set({0}, ' ')
LTRIM(STRING, STRING) -> STRING = ltrim_set({0}, {1})
RTRIM(STRING) -> STRING = rtrim_set({0}, ' ')
RTRIM(STRING, STRING) -> STRING = rtrim_set({0}, {1})
LPAD(STRING, INT64) -> STRING = lpad_text({0}, {1}, ' ')
LPAD(STRING, INT64, STRING) -> STRING = lpad_text({0}, {1}, {2})
RPAD(STRING, INT64) -> STRING = rpad_text({0}, {1}, ' ')
RPAD(STRING, INT64, STRING) -> STRING = rpad_text({0}, {1}, {2})
REPEAT(STRING, INT64) -> STRING = repeat_text({0}, {1})
REVERSE(STRING) -> STRING
STRPOS(STRING, STRING) -> INT64 = strpos({0}, {1})
REPLACE(STRING, STRING, STRING) -> STRING = replace_every({0}, {1}, {2})
LEFT(STRING, INT64) -> STRING = left({0}, {1})
RIGHT(STRING, INT64) -> STRING = right({0}, {1})
CONCAT(STRING...) -> STRING = concat({*})
SPLIT_PART(STRING, STRING, INT64) -> STRING = split_part({0}, {1}, {2})
ASCII(STRING) -> INT64 = CAST(ascii({0}) AS BIGINT)
CHR(INT64) -> STRING = text_of_code_points([{0}])
SHA256(BYTES) -> BYTES = hash_sha256({0})
SHA512(BYTES) -> BYTES = hash_sha512({0})
REGEXP_REPLACE(STRING, STRING, STRING) -> STRING = regexp_replace({0}, {1}, {2})
REGEXP_REPLACE(STRING, STRING, STRING, STRING) -> STRING = regexp_replace({0}, {1}, {2}, {3})
NOW() -> TIMESTAMP = {now}
CURRENT_TIMESTAMP() -> TIMESTAMP = {now}
CURRENT_DATE() -> DATE = timestamp_date({now}, {zone})
DATE_TRUNC(STRING, TIMESTAMP) -> TIMESTAMP = timestamp_trunc({1}, upper({0}), {zone})
DATE_TRUNC(STRING, TIMESTAMP, STRING) -> TIMESTAMP = timestamp_trunc({1}, upper({0}), {2})
TO_TIMESTAMP(FLOAT64) -> TIMESTAMP = timestamp_of_unix(float_to_int({0} * 1000000), 1000)
TO_CHAR(TIMESTAMP, STRING) -> STRING = pg_to_char({0}, {1}, {zone})
MAKE_DATE(INT64, INT64, INT64) -> DATE = date_of_parts({0}, {1}, {2})
JSONB_TYPEOF(PG_JSONB) -> STRING = json_type_name({0})
ARRAY_LENGTH(ARRAY<ANY>, INT64) -> INT64 = CASE WHEN {1} = 1 AND len({0}) > 0 THEN len({0}) END
ARRAY_UPPER(ARRAY<ANY>, INT64) -> INT64 = CASE WHEN {1} = 1 AND len({0}) > 0 THEN len({0}) END
ARRAY_CAT(ARRAY<ANY>, ARRAY<ANY>) -> ARRAY<ANY> = ({0} || {1})
ARRAY_TO_STRING(ARRAY<STRING>, STRING) -> STRING = join_texts({0}, {1}, NULL)
ARRAY_TO_STRING(ARRAY<STRING>, STRING, STRING) -> STRING = join_texts({0}, {1}, {2})
"""

_AGGREGATES = """
@COUNT(ANY) -> INT64 = count({args})
@SUM(INT64) -> PG_NUMERIC = CAST(sum({args}) AS VARCHAR)
@SUM(FLOAT64) -> FLOAT64 = sum({args})
@SUM(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_sum(list({args}))
@AVG(INT64) -> PG_NUMERIC = pg_integer_average(sum({args}), count({args}))
@AVG(FLOAT64) -> FLOAT64 = avg({args})
@AVG(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_average(list({args}))
@MIN(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_extreme(list({args}), FALSE)
@MAX(PG_NUMERIC) -> PG_NUMERIC = pg_numeric_extreme(list({args}), TRUE)
@MIN(ORDERED) -> ORDERED = min({args})
@MAX(ORDERED) -> ORDERED = max({args})
@ARRAY_AGG(ANY) -> ARRAY<ANY> = list({args})
@STRING_AGG(STRING, STRING) -> STRING = string_agg({args})
@BOOL_AND(BOOL) -> BOOL = bool_and({args})
@BOOL_OR(BOOL) -> BOOL = bool_or({args})
@EVERY(BOOL) -> BOOL = bool_and({args})
@BIT_AND(INT64) -> INT64 = bit_and({args})
@BIT_OR(INT64) -> INT64 = bit_or({args})
"""

POSTGRES_FUNCTIONS: Final = read_signatures(_TABLE + _AGGREGATES)
