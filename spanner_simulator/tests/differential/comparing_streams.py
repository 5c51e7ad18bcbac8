"""Compares what two sides' change streams hold, transaction by transaction and row by row.

Grouping into records is each side's own affair as long as it obeys the rules (`record_rules`): a
side with several stream partitions must group differently, and the emulator orders a transaction's
changes by key. So mods are compared row by row, with what their record says of them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from differential.canonical import canonical_value
from differential.difference import Difference
from differential.record_rules import by_transaction, violations
from differential.running import Run, have_parted
from differential.stream_reading import ColumnType, DataRecord, Mod, StreamReading
from differential.workload import Workload

_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.\d+Z")


@dataclass(frozen=True, slots=True)
class _Change:
    """One mod with what its record says of it."""

    mod_type: str
    capture_type: str
    mod: Mod
    columns: tuple[ColumnType, ...]


_Row = tuple[str, str]  # table, and keys as text


def compare_streams(workload: Workload, simulator: Run, emulator: Run) -> Iterator[Difference]:
    """Differences between all change streams of two runs."""
    yield from _of_transactions(simulator, is_simulator=True)
    yield from _of_transactions(emulator, is_simulator=False)
    for name in simulator.streams:
        ours, theirs = simulator.streams[name], emulator.streams.get(name)
        if isinstance(ours, StreamReading) and isinstance(theirs, StreamReading):
            yield from _of_rules(name, simulator, ours, is_simulator=True)
            yield from _of_rules(name, emulator, theirs, is_simulator=False)
            yield from _of_stream(workload, name, (simulator, ours), (emulator, theirs))
        else:
            yield Difference("stream", -1, name, _told(ours), _told(theirs))


def _told(reading: Any) -> str:
    return "is read" if isinstance(reading, StreamReading) else repr(reading)


def _of_rules(
    name: str, run: Run, reading: StreamReading, *, is_simulator: bool
) -> Iterator[Difference]:
    for commit, text in violations(reading):
        step = run.step_of(commit)
        said = (text, "obeys") if is_simulator else ("obeys", text)
        yield Difference("rule", -1 if step is None else step, f"stream {name}", *said)
    for commit, transaction in by_transaction(reading):
        if run.step_of(commit) is None:
            text = f"a transaction of no step: {commit} {transaction}"
            said = (text, "") if is_simulator else ("", text)
            yield Difference("transaction", -1, f"stream {name}", *said)


def _of_transactions(run: Run, *, is_simulator: bool) -> Iterator[Difference]:
    """A commit is one transaction, with one id in all streams and of no other commit."""
    ids: dict[str, set[str]] = defaultdict(set)
    commits: dict[str, set[str]] = defaultdict(set)
    for reading in run.streams.values():
        if isinstance(reading, StreamReading):
            for one in reading.records:
                ids[one.commit_timestamp].add(one.transaction)
                commits[one.transaction].add(one.commit_timestamp)
    for commit, some in ids.items():
        # Partitioned DML, and what DDL writes, may be several transactions.
        if commit in run.commits and len(some) > 1:
            text = f"one commit is {len(some)} transactions"
            said = (text, "obeys") if is_simulator else ("obeys", text)
            yield Difference("rule", run.commits[commit], "all streams", *said)
    for transaction, times in commits.items():
        if len(times) > 1:
            text = f"transaction {transaction} commits {len(times)} times"
            said = (text, "obeys") if is_simulator else ("obeys", text)
            yield Difference("rule", -1, "all streams", *said)


def _of_stream(
    workload: Workload,
    name: str,
    simulator: tuple[Run, StreamReading],
    emulator: tuple[Run, StreamReading],
) -> Iterator[Difference]:
    (our_run, ours), (their_run, theirs) = simulator, emulator
    if ours.metadata and theirs.metadata and ours.metadata != theirs.metadata:
        yield Difference("columns", -1, f"stream {name}", ours.metadata, theirs.metadata)
    left, right = _by_step(our_run, ours), _by_step(their_run, theirs)
    parted = have_parted(workload, our_run, their_run)
    last = len(our_run.outcomes) - parted
    for step in sorted(one for one in left.keys() | right.keys() if one < last):
        facts = {"step": workload.steps[step], "commits": (our_run.commits, their_run.commits)}
        where = f"stream {name}: {workload.steps[step]}"
        if step not in left or step not in right:
            both = [_told_records(one.get(step)) for one in (left, right)]
            records = left.get(step, []), right.get(step, [])
            yield Difference("transaction", step, where, *both, facts | {"records": records})
            continue
        pair = (left[step], our_run), (right[step], their_run)
        for kind, here, one, two, more in _of_transaction(*pair):
            yield Difference(kind, step, f"{where}: {here}", one, two, facts | more)


def _by_step(run: Run, reading: StreamReading) -> dict[int, list[DataRecord]]:
    found: dict[int, list[DataRecord]] = defaultdict(list)
    for (commit, _), records in by_transaction(reading).items():
        step = run.step_of(commit)
        if step is not None:
            found[step] += records
    return found


def _told_records(records: list[DataRecord] | None) -> Any:
    if records is None:
        return "nothing"
    return [(one.table, one.mod_type, [mod.keys for mod in one.mods]) for one in records]


_Found = tuple[Any, str, Any, Any, dict[str, Any]]


def _of_transaction(
    simulator: tuple[list[DataRecord], Run], emulator: tuple[list[DataRecord], Run]
) -> Iterator[_Found]:
    (ours, our_run), (theirs, their_run) = simulator, emulator
    for about in ("tag", "is_system"):
        one, two = ({getattr(record, about) for record in records} for records in (ours, theirs))
        if one != two:
            yield "rule", about, sorted(one), sorted(two), {"about": about}
    left, right = _rows(ours, our_run), _rows(theirs, their_run)
    for row in left.keys() | right.keys():
        where = f"{row[0]} {row[1]}"
        one, two = left.get(row, []), right.get(row, [])
        kinds = [change.mod_type for change in one], [change.mod_type for change in two]
        if kinds[0] != kinds[1]:
            more = {"row": row, "changes": (one, two)}
            yield "mods", where, kinds[0], kinds[1], more
        # What both have at the end of their changes of this row is comparable even so.
        for first, second in zip(reversed(one), reversed(two), strict=False):
            if first.mod_type == second.mod_type:
                yield from _of_change(where, first, second, our_run, their_run)


def _rows(records: list[DataRecord], run: Run) -> dict[_Row, list[_Change]]:
    """Changes by row, rows in the order of their first change."""
    found: dict[_Row, list[_Change]] = defaultdict(list)
    for record in records:
        for mod in record.mods:
            keys = json.dumps(_paired(mod.keys, run), sort_keys=True, ensure_ascii=False)
            found[record.table, keys].append(
                _Change(record.mod_type, record.capture_type, mod, record.columns)
            )
    return found


def _paired(data: Any, run: Run) -> Any:
    """A key by which two sides' rows are found to be the same.

    The emulator writes moments without their fraction, and years without their zeros.
    """
    canonical = canonical_value(data, run.commits)
    whole = _FRACTION.sub(r"\1Z", json.dumps(canonical))
    return json.loads(whole.replace('"1-01-01T', '"0001-01-01T'))


def _of_change(
    where: str, ours: _Change, theirs: _Change, our_run: Run, their_run: Run
) -> Iterator[_Found]:
    if ours.capture_type != theirs.capture_type:
        yield "capture_type", where, ours.capture_type, theirs.capture_type, {}
    left = {one.name: one for one in ours.columns}
    right = {one.name: one for one in theirs.columns}
    if list(left) != list(right):
        more: dict[str, Any] = {"names": (set(left), set(right)), "mods": (ours.mod, theirs.mod)}
        more |= {"table": where.split(" ", 1)[0]}
        more |= {"mod_type": ours.mod_type}
        yield "column_types", where, list(left), list(right), more
    for name in left.keys() & right.keys():
        if left[name] != right[name]:
            yield "column_types", where, repr(left[name]), repr(right[name]), {"name": name}
    for field in ("keys", "new", "old"):
        one, two = getattr(ours.mod, field), getattr(theirs.mod, field)
        # Names beyond the columns both list were told above.
        names = left.keys() & right.keys()
        for name in sorted((one.keys() | two.keys()) & names):
            values = [
                canonical_value(held[name], run.commits) if name in held else "absent"
                for held, run in ((one, our_run), (two, their_run))
            ]
            if values[0] != values[1] or type(values[0]) is not type(values[1]):
                raw = (one.get(name), two.get(name))
                more = {
                    "type": left[name].type,
                    "raw": raw,
                    "field": field,
                    "mod_type": ours.mod_type,
                    "table": where.split(" ", 1)[0],
                    "name": name,
                    "mods": (ours.mod, theirs.mod),
                }
                yield "value", f"{where}: {field}.{name}", *values, more
