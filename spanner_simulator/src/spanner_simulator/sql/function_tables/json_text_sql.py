"""TO_JSON_STRING for every type: DuckDB's text that prints a value as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spanner_simulator.sql.sql_types import field_key
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.literals import text_literal

if TYPE_CHECKING:
    from spanner_simulator.core.values import ValueType


def json_document_sql(sql: str, value_type: ValueType, *, quotes_wide: bool) -> str:
    """The text of a JSON document; SQL's NULL becomes JSON's.

    `quotes_wide`: integers beyond what a double holds exactly become strings.
    """
    return f"coalesce({_document(sql, value_type, quotes_wide=quotes_wide)}, 'null')"


def _document(sql: str, value_type: ValueType, *, quotes_wide: bool) -> str:
    if value_type.element is not None:
        inner = json_document_sql("_e", value_type.element, quotes_wide=quotes_wide)
        return f"json_array_text(list_transform({sql}, lambda _e: {inner}))"
    match value_type.code:
        case "BOOL":
            return f"CAST({sql} AS VARCHAR)"
        case "ENUM":
            cases = " ".join(
                f"WHEN {number} THEN {text_literal(json.dumps(name))}"
                for name, number in value_type.members
            )
            number = f"CAST({sql} AS VARCHAR)"
            return f"CASE {sql} {cases} ELSE {number} END" if cases else number
        case "PROTO":
            raise unsupported("messages as JSON")
        case "INT64":
            return f"json_of_int({sql})" if quotes_wide else f"CAST({sql} AS VARCHAR)"
        case "FLOAT64" | "FLOAT32":
            return f"json_of_float(CAST({sql} AS DOUBLE))"
        case "NUMERIC":
            return f"numeric_text({sql})" if value_type.annotation is None else sql
        case "JSON":
            return sql
        case "BYTES":
            return f"json_string_literal(bytes_to_base64({sql}))"
        case "DATE":
            return f"json_string_literal(date_format_text('%E4Y-%m-%d', {sql}))"
        case "TIMESTAMP":
            return f"json_string_literal(timestamp_rfc3339({sql}))"
        case "STRUCT":
            pairs = " || ',' || ".join(
                f"json_string_literal('{name.replace(chr(39), chr(39) * 2)}') || ':' || "
                + json_document_sql(
                    f"struct_extract({sql}, '{field_key(index)}')", kind, quotes_wide=quotes_wide
                )
                for index, (name, kind) in enumerate(value_type.fields)
            )
            return f"CASE WHEN {sql} IS NULL THEN NULL ELSE '{{' || {pairs} || '}}' END"
        case _:
            return f"json_string_literal({sql})"
