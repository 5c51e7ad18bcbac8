"""The versions of rows that a small release makes, merged by delta-rs: as `history_merge` does.

Values of the versions before stay in Arrow's form from the table's files to the table's files, so
that none passes through a type with other bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_merge import as_tuples, same_key
from tidegate.spark_consumer.sinks.delta.fold import DELETE, PATCH, REPLACE, folded_value
from tidegate.spark_consumer.sinks.delta.history_columns import HistoryColumns
from tidegate.spark_consumer.sinks.delta.row_fold import FoldedChange
from tidegate.spark_consumer.sinks.sql_names import double_quoted

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a release does to a history table.

    `rows` are those of the MERGE, as Arrow has them: versions that end and versions that begin.
    `lost` are the ordinals of UPDATEs of rows that the table lacks.
    """

    rows: Any
    lost: frozenset[int]


def stage_rows(
    history: DirectTable,
    folded: Sequence[FoldedChange],
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    ours: HistoryColumns,
) -> StagedRows:
    """Return the versions that folded changes close and open; `history` is before the release."""
    values = history.values(keys[0], [one.state.key[keys[0]] for one in folded])
    current = history.found(keys[0], values, columns, part=ours.current)
    place_of = {key: place for place, key in enumerate(as_tuples(current.select(list(keys))))}
    of_change = as_tuples(history.rows([one.state.key for one in folded], keys))
    places = [place_of.get(key) for key in of_change]
    changes = list(zip(folded, places, strict=True))
    closing = [one for one, place in changes if one.is_first and place is not None]
    opening = [(one, place) for one, place in changes if _opens(one, is_held=place is not None)]
    both = [*((one, None) for one in closing), *opening]
    source: dict[str, Any] = {
        "is_closing": history.flags([n < len(closing) for n in range(len(both))]),
        "starts_at": history.values(ours.valid_from, [one.starts_at for one, _ in both]),
        "ends_at": history.values(ours.valid_to, [one.ends_at for one, _ in both]),
    }
    for n, key in enumerate(keys):
        source[f"key_{n}"] = history.values(key, [one.state.key[key] for one, _ in both])
    held = [place for _, place in both]
    for n, column in enumerate(columns):
        captured = [one.state.captures(column) for one, _ in both]
        new = history.values(column, [one.state.values.get(column) for one, _ in both])
        source[folded_value(n)] = history.either(captured, new, current[column], held)
    lost = (one.ordinal for one, place in changes if _is_lost(one, is_held=place is not None))
    return StagedRows(history.together(source), frozenset(lost))


def merge_rows(
    history: DirectTable,
    rows: Any,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    ours: HistoryColumns,
    commit: Commit,
) -> None:
    """Close and open versions in one commit, unless the table has it or nothing would change."""
    history.merge(
        rows,
        same_row=f"s.is_closing AND t.{ours.is_current} = true AND {same_key(rows, keys)}",
        is_deleted=f"t.{ours.valid_from} >= s.starts_at",
        updated={ours.valid_to: "s.starts_at", ours.is_current: "false"},
        is_inserted="NOT s.is_closing",
        inserted={
            ours.valid_from: "s.starts_at",
            ours.valid_to: "s.ends_at",
            ours.is_current: "s.ends_at IS NULL",
            **{double_quoted(column): f"s.{folded_value(n)}" for n, column in enumerate(columns)},
        },
        commit=commit,
    )


def _opens(one: FoldedChange, *, is_held: bool) -> bool:
    """Whether a version begins with a change: the last one of its key and commit timestamp."""
    is_alive = one.state.action == REPLACE or (one.state.action == PATCH and is_held)
    return is_alive and one.ends_at != one.starts_at


def _is_lost(one: FoldedChange, *, is_held: bool) -> bool:
    """Whether a change is an UPDATE of a row that is deleted, or was never inserted."""
    is_unknown = one.state.action == DELETE or (one.state.action == PATCH and not is_held)
    return one.mod_type == "UPDATE" and is_unknown
