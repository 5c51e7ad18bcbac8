"""From the net changes of one transaction to its data change records for one change stream.

Records are grouped per stream partition: consecutive changes of one table, mod type and column set
share one. Sequences are unique and increasing over the whole transaction. The commit log (ground
truth) does not use this module's values, so that a mistake here shows as a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from spanner_simulator.core.change_streams.mutable_events import sequence_text
from spanner_simulator.core.change_streams.records import ColumnType, DataChangeRecord
from spanner_simulator.core.change_streams.row_mod import RowMod
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.rows.mutations import ModType, RowChange
from spanner_simulator.core.schema.schema_objects import (
    CaptureType,
    ChangeStream,
    Table,
)

_MODS_PER_RECORD_MAX = 256


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The fields that all records of a transaction share."""

    commit_timestamp_us: int
    server_transaction_id: str
    transaction_tag: str = ""
    is_system_transaction: bool = False


@dataclass(slots=True)
class Assembled:
    """The records of one transaction with their stream partitions, in sequence order.

    `places` has, for each change that made a mod, its record sequence and mod number.
    """

    records: list[tuple[StreamPartition, DataChangeRecord]] = field(default_factory=list)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Draft:
    partition: StreamPartition
    sequence: int
    table: Table
    mod_type: ModType
    columns: tuple[str, ...]
    mods: list[RowMod] = field(default_factory=list)

    def fits(self, table: Table, mod_type: ModType, columns: tuple[str, ...]) -> bool:
        return (
            self.table is table
            and self.mod_type == mod_type
            and self.columns == columns
            and len(self.mods) < _MODS_PER_RECORD_MAX
        )


@lru_cache(maxsize=4096)
def column_types(table: Table, columns: tuple[str, ...]) -> tuple[ColumnType, ...]:
    """Types of the key columns and these others, in ordinal order; the same object each time."""
    captured = set(columns).union(table.key_names)
    return tuple(
        ColumnType(
            column.name,
            column.value_type.json_text(),
            column.name in table.key_names,
            table.ordinal_of[column.name],
        )
        for column in table.columns
        if column.name in captured
    )


def assemble(
    stream: ChangeStream,
    partitions: StreamPartitions,
    changes: Sequence[RowChange],
    facts: CommitFacts,
    *,
    order: int = 0,
) -> Assembled:
    """All records of one transaction for a stream; none if the stream watches none of its changes.

    `order` begins the record sequences of mutable key ranges.
    """
    if len(changes) == 1:
        return _assemble_one(stream, partitions, changes[0], facts, order)
    drafts: list[_Draft] = []
    open_drafts: dict[str, _Draft] = {}
    out = Assembled()
    capture = stream.capture_type
    is_mutable = partitions.is_mutable
    for index, change in enumerate(changes):
        if not is_captured(stream, change, facts):
            continue
        columns = _listed_columns(stream, change, capture)
        if columns is None:
            continue
        partition = partitions.locate(change.key)
        draft = open_drafts.get(partition.token)
        if draft is None or not draft.fits(change.table, change.mod_type, columns):
            draft = _Draft(partition, len(drafts), change.table, change.mod_type, columns)
            drafts.append(draft)
            open_drafts[partition.token] = draft
        sequence = _sequence(draft.sequence, order, is_mutable=is_mutable)
        out.places[index] = (sequence, len(draft.mods))
        draft.mods.append(_mod(stream, change, capture))
    for draft in drafts:
        record = DataChangeRecord(
            commit_timestamp_us=facts.commit_timestamp_us,
            record_sequence=_sequence(draft.sequence, order, is_mutable=is_mutable),
            server_transaction_id=facts.server_transaction_id,
            is_last_record_in_transaction_in_partition=(
                open_drafts[draft.partition.token] is draft
            ),
            table_name=draft.table.name,
            column_types=column_types(draft.table, draft.columns),
            mods=tuple(draft.mods),
            mod_type=draft.mod_type,
            value_capture_type=capture,
            number_of_records_in_transaction=len(drafts),
            number_of_partitions_in_transaction=len(open_drafts),
            transaction_tag=facts.transaction_tag,
            is_system_transaction=facts.is_system_transaction,
        )
        out.records.append((draft.partition, record))
    return out


def _assemble_one(
    stream: ChangeStream,
    partitions: StreamPartitions,
    change: RowChange,
    facts: CommitFacts,
    order: int,
) -> Assembled:
    """The same for a transaction with one change, as most have: no grouping, and no counts."""
    capture = stream.capture_type
    columns = _listed_columns(stream, change, capture)
    if columns is None or not is_captured(stream, change, facts):
        return Assembled()
    table = change.table
    sequence = _sequence(0, order, is_mutable=partitions.is_mutable)
    record = DataChangeRecord(
        facts.commit_timestamp_us,
        sequence,
        facts.server_transaction_id,
        True,  # noqa: FBT003  # the last record: there is no other
        table.name,
        column_types(table, columns),
        (_mod(stream, change, capture),),
        change.mod_type,
        capture,
        1,
        1,
        facts.transaction_tag,
        facts.is_system_transaction,
    )
    return Assembled([(partitions.locate(change.key), record)], {0: (sequence, 0)})


def _sequence(number: int, order: int, *, is_mutable: bool) -> str:
    return sequence_text(order, number) if is_mutable else _decimal(number)


@lru_cache(maxsize=4096)
def _decimal(number: int) -> str:
    return f"{number:08d}"


def is_captured(stream: ChangeStream, change: RowChange, facts: CommitFacts) -> bool:
    """Whether the stream's exclusions admit changes of this kind."""
    if change.mod_type in stream.excluded_mod_types:
        return False
    is_ttl = facts.is_system_transaction and change.mod_type == "DELETE"
    return not (is_ttl and stream.option("exclude_ttl_deletes") is True)


def _listed_columns(
    stream: ChangeStream, change: RowChange, capture: CaptureType
) -> tuple[str, ...] | None:
    """Non-key columns in column_types; None if the change gives no record."""
    tracked = stream.tracked_columns(change.table)
    if tracked is None:
        return None
    if change.mod_type != "UPDATE":
        return tracked
    modified = tuple(name for name in tracked if name in change.written)
    if not modified:
        return None
    return modified if capture in ("OLD_AND_NEW_VALUES", "NEW_VALUES") else tracked


def _mod(stream: ChangeStream, change: RowChange, capture: CaptureType) -> RowMod:
    tracked = stream.tracked_columns(change.table) or ()
    new: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    match change.mod_type, capture:
        case "INSERT", _:
            new = tracked
        case "UPDATE", _:
            modified = tuple(name for name in tracked if name in change.written)
            new = tracked if capture in ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES") else modified
            old = modified if capture in ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES") else ()
        case "DELETE", "OLD_AND_NEW_VALUES" | "NEW_ROW_AND_OLD_VALUES":
            old = tracked
        case _:
            pass
    return RowMod(change.table, change.old, change.new, new, old)
