"""The rules that one side's data change records must obey by themselves.

Tokens, sequences and transaction ids are made up by each side, so they are held against rules
rather than against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from differential.stream_reading import DataRecord, StreamReading

_MODS_PER_RECORD_MAX = 256


def by_transaction(reading: StreamReading) -> dict[tuple[str, str], list[DataRecord]]:
    """Records by (commit timestamp, server transaction id), in sequence order."""
    found: dict[tuple[str, str], list[DataRecord]] = defaultdict(list)
    for record in reading.records:
        found[record.commit_timestamp, record.transaction].append(record)
    for records in found.values():
        records.sort(key=lambda one: one.sequence)
    return dict(sorted(found.items()))


def violations(reading: StreamReading) -> Iterator[tuple[str, str]]:
    """(commit timestamp or nothing, what is wrong) for each broken rule."""
    for fault in reading.faults:
        yield "", fault
    delivered: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for record in reading.records:
        place = (record.commit_timestamp, record.transaction, record.sequence)
        delivered[record.token].append(place)
        if not reading.start <= record.commit_timestamp <= reading.end:
            yield record.commit_timestamp, "a record outside the bounds of the query"
    for places in delivered.values():
        if [one[0] for one in places] != sorted(one[0] for one in places):
            yield "", "a stream partition's records out of commit order"
        if len(set(places)) != len(places):
            yield "", "a stream partition gives a record twice"
    for (commit, _), records in by_transaction(reading).items():
        for text in _of_transaction(records):
            yield commit, text


def _of_transaction(records: list[DataRecord]) -> Iterator[str]:
    sequences = [one.sequence for one in records]
    if len(set(sequences)) != len(sequences):
        yield "two records of a transaction share a record_sequence"
    if any(not one.isdigit() or len(one) != 8 for one in sequences):
        yield "a record_sequence that is not eight digits"
    partitions: dict[str, list[DataRecord]] = defaultdict(list)
    for record in records:
        partitions[record.token].append(record)
        if record.record_count != len(records):
            yield f"number_of_records {record.record_count}, there are {len(records)}"
        if not record.mods:
            yield "a record without mods"
        names = [one.name for one in record.columns]
        places = [one.ordinal_position for one in record.columns]
        if len(set(names)) != len(names) or places != sorted(places):
            yield "column_types not in ordinal order"
        yield from _of_mods(record)
    for record in records:
        if record.partition_count != len(partitions):
            yield f"number_of_partitions {record.partition_count}, there are {len(partitions)}"
    for own in partitions.values():
        if [one.is_last for one in own] != [False] * (len(own) - 1) + [True]:
            yield "is_last_record_in_transaction_in_partition is not on the last record alone"
        for first, second in pairwise(own):
            if _could_be_one(first, second):
                yield "two records in a row that could be one"


def _of_mods(record: DataRecord) -> Iterator[str]:
    names = {one.name for one in record.columns}
    keys = {one.name for one in record.columns if one.is_primary_key}
    for mod in record.mods:
        for name in mod.nulls:
            yield f"{name} is null, of {record.mod_type} under {record.capture_type}"
        if set(mod.keys) != keys:
            yield "a mod's keys are not the key columns of column_types"
        if not set(mod.new) | set(mod.old) <= names - keys:
            yield "a mod's values are not among the columns of column_types"


def _could_be_one(first: DataRecord, second: DataRecord) -> bool:
    return (
        (first.table, first.mod_type, first.columns)
        == (second.table, second.mod_type, second.columns)
    ) and len(first.mods) < _MODS_PER_RECORD_MAX
