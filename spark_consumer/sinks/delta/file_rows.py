"""Rows of several data files as those of one: types, order, and the bounds that a log keeps of it.

Values stay in Arrow's form from file to file, so that none passes through a type with other bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow
from pyarrow import compute

_ELEMENT = "element"
_TEXT_MAX = 32
_MS = timedelta(milliseconds=1)


class OtherColumns(Exception):  # noqa: N818 - an answer, not an error
    """A file has a column that its table does not have; the text names it."""


def plain_schema(schema: Any, *, without: Iterable[str] = ()) -> Any:
    """Return a table's columns in types that Parquet has for every reader, all nullable.

    Texts and bytes are those that may have more than 2 GiB in one column: a small file, whose
    values compress well, may hold that.  Parquet does not distinguish them from others.
    """
    left_out = set(without)
    return pyarrow.schema(
        [(field.name, _plain(field.type)) for field in schema if field.name not in left_out]
    )


def aligned(rows: Any, schema: Any) -> Any:
    """Return a file's rows with the columns of a schema: null what the file does not have.

    Raises OtherColumns for a column that the schema lacks.
    """
    arrays = dict(zip(rows.column_names, rows.columns, strict=True))
    _refuse_others(arrays, schema)
    columns = [
        # Chunk by chunk: together they may have more bytes than their type takes.
        pyarrow.chunked_array(
            [_as_type(chunk, field.type) for chunk in arrays[field.name].chunks], field.type
        )
        if field.name in arrays
        else pyarrow.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def in_order(rows: Any, columns: Sequence[str]) -> Any:
    """Return rows sorted by columns of numbers; those that are sorted already as they are."""
    if _is_sorted(rows, columns):
        return rows
    return rows.sort_by([(column, "ascending") for column in columns])


def statistics(rows: Any, columns: Iterable[str]) -> str:
    """Return the number of rows and the bounds of these columns, as Delta's log has them.

    Columns of types whose bounds need more than a comparison have none: readers then read the file.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        if name not in rows.column_names or not _has_bounds(rows.schema.field(name).type):
            continue
        nulls[name] = rows[name].null_count
        found = compute.min_max(rows[name]).as_py()
        bounds = _low(found["min"]), _high(found["max"])
        if None not in bounds:
            least[name], most[name] = bounds
    content = {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": nulls,
    }
    # Unescaped: Arrow's reader in Rust decodes escapes of many characters beyond 16 bits wrongly.
    return json.dumps(content, ensure_ascii=False)


def _plain(kind: Any) -> Any:
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([(field.name, _plain(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pyarrow.list_(pyarrow.field(_ELEMENT, _plain(kind.value_type)))
    if types.is_string(kind) or types.is_string_view(kind):
        return pyarrow.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind):
        return pyarrow.large_binary()
    return kind


def _as_type(values: Any, kind: Any) -> Any:
    if not pyarrow.types.is_struct(kind) or not pyarrow.types.is_struct(values.type):
        return values if values.type == kind else values.cast(kind)
    have = {field.name: n for n, field in enumerate(values.type)}
    _refuse_others(have, kind)
    # Not `field()`: of a slice it returns all values.
    inner = values.flatten()
    children = [
        _as_type(inner[have[field.name]], field.type)
        if field.name in have
        else pyarrow.nulls(len(values), field.type)
        for field in kind
    ]
    return pyarrow.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _refuse_others(have: Iterable[str], want: Any) -> None:
    others = sorted(set(have).difference(field.name for field in want))
    if others:
        raise OtherColumns(", ".join(others))


def _is_sorted(rows: Any, columns: Sequence[str]) -> bool:
    """Whether each row follows the one before it, or is equal, by the columns in their order."""
    last = max(rows.num_rows - 1, 0)
    follows: Any = True
    for column in reversed(columns):
        before, after = rows[column].slice(0, last), rows[column].slice(1)
        same = compute.equal(after, before)
        follows = compute.or_(compute.greater(after, before), compute.and_(same, follows))
    # Of no comparison `all` is null; a null in a column leaves it null as well.
    return last == 0 or compute.all(follows, skip_nulls=False).as_py() is True


def _has_bounds(kind: Any) -> bool:
    types = pyarrow.types
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.tz is not None)
    )


def _low(value: Any) -> Any:
    """Return a bound that is not above a value, in the form of Delta's log; None without one."""
    if isinstance(value, datetime):
        return _text_of_time(value)
    if isinstance(value, date):
        return value.isoformat()
    return value[:_TEXT_MAX] if isinstance(value, str) else value


def _high(value: Any) -> Any:
    """Return a bound that is not below a value; None without one."""
    if isinstance(value, datetime):
        try:
            return _text_of_time(value + _MS if value.microsecond % 1_000 else value)
        except OverflowError:
            return None
    if isinstance(value, date):
        return value.isoformat()
    return None if isinstance(value, str) and len(value) > _TEXT_MAX else value


def _text_of_time(value: datetime) -> str:
    """Return a time to the millisecond, which is all that readers take."""
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='milliseconds')}Z"
