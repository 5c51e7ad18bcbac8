"""What a change stream does, for every model of it and for a real one: `ports.ChangeStream`.

A case acts on a stage and reads it as a worker does.  It relies on what happened (`truth()`: the
commit times of each stream partition's data change records) and never on which stream partition a
commit falls into, as a stage may leave that open.  Nothing was committed before the stage's
`start_ns`; `live()` are the stream partitions that have not ended; `commit()` is later than
everything before it; `split()` and `merge()`, of several, return their `Turn`.  What `query()`
returns ends when the service ends it with OK.  Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    StreamRecord,
)
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

_RESPONSES_MAX = 200
CASES: list[Callable[[Any], None]] = []
BOUNDED_CASES: list[Callable[[Any], None]] = []  # queries with an end, which workers never give


@dataclass(frozen=True, slots=True)
class Turn:
    """A split or a merge; `at_ns` is the children's start."""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    at_ns: int


@CASES.append
def the_initial_query_names_what_is_active_and_ends(stage):
    children = _children(_whole(stage, ROOT_TOKEN, stage.start_ns))

    assert {child.token for child in children} == set(stage.live())
    assert {(child.parents, child.start_ns) for child in children} == {((), stage.start_ns)}


@CASES.append
def the_initial_query_of_a_later_time_names_the_children(stage):
    turn = stage.split()
    children = _children(_whole(stage, ROOT_TOKEN, turn.at_ns))

    assert {child.token for child in children} == set(stage.live())
    assert {(child.parents, child.start_ns) for child in children} == {((), turn.at_ns)}


@CASES.append
def records_come_in_commit_order_and_again_from_the_inclusive_start(stage):
    token = _token_with_records(stage, 3)
    times = list(stage.truth()[token])

    assert _times(_some(stage, token, stage.start_ns, records=len(times))) == times
    second = sorted(set(times))[1]
    again = times[times.index(second) :]
    assert _times(_some(stage, token, second, records=len(again))) == again
    assert _times(_some(stage, token, times[-1], records=1))[0] == times[-1]


@CASES.append
def after_a_heartbeat_nothing_earlier_comes(stage):
    (token, *_) = stage.live()
    query = stage.query(token, stage.start_ns)
    items = _flat(query)
    beat = next(item for item in items if isinstance(item, HeartbeatRecord))
    while not stage.truth().get(token):
        stage.commit()
    change = next(item for item in items if isinstance(item, DataChangeRecord))

    assert change.commit_timestamp_ns // 1000 >= beat.timestamp_ns // 1000


@CASES.append
def a_split_ends_its_parent_after_its_records_with_all_children(stage):
    for _ in range(6):
        stage.commit()
    turn = stage.split()
    (parent,) = turn.parents
    records = _whole(stage, parent, stage.start_ns)

    assert _times(records) == list(stage.truth().get(parent, ()))
    assert _children(records) == {ChildPartition(c, (parent,), turn.at_ns) for c in turn.children}
    kinds = [type(item) for item in records if not isinstance(item, HeartbeatRecord)]
    assert kinds == sorted(kinds, key=lambda kind: kind is ChildPartitionsRecord)


@CASES.append
def an_ended_parent_names_its_children_again_from_its_end(stage):
    stage.commit()
    turn = stage.split()
    (parent,) = turn.parents

    assert _children(_whole(stage, parent, turn.at_ns - 1000)) == {
        ChildPartition(child, (parent,), turn.at_ns) for child in turn.children
    }


@CASES.append
def both_parents_of_a_merge_name_the_child_with_both(stage):
    stage.split()
    for _ in range(4):
        stage.commit()
    turn = stage.merge()
    (child,) = turn.children
    for parent in turn.parents:
        (found,) = _children(_whole(stage, parent, turn.at_ns - 1000))
        assert (found.token, found.start_ns) == (child, turn.at_ns)
        assert set(found.parents) == set(turn.parents)


@CASES.append
def each_record_is_in_one_stream_partition_within_its_life(stage):
    """What the parents have and what the children have is everything, once."""
    for _ in range(4):
        stage.commit()
    turn = stage.split()
    for _ in range(4):
        stage.commit()
    truth = {token: list(times) for token, times in stage.truth().items()}
    (parent,) = turn.parents

    assert all(at_ns < turn.at_ns for at_ns in _times(_whole(stage, parent, stage.start_ns)))
    for child in turn.children:
        times = truth.get(child, [])
        assert _times(_some(stage, child, turn.at_ns, records=len(times))) == times
        assert all(at_ns >= turn.at_ns for at_ns in times)


@BOUNDED_CASES.append
def a_bounded_query_ends_with_its_inclusive_end(stage):
    token = _token_with_records(stage, 3)
    times = list(stage.truth()[token])
    end_ns = sorted(set(times))[1]
    records = _whole(stage, token, stage.start_ns, end_ns)

    assert _times(records) == [at_ns for at_ns in times if at_ns <= end_ns]
    assert not any(isinstance(record, ChildPartitionsRecord) for record in records)


@BOUNDED_CASES.append
def a_query_that_ends_before_a_split_names_no_children(stage):
    stage.commit()
    turn = stage.split()
    (parent,) = turn.parents
    records = _whole(stage, parent, stage.start_ns, turn.at_ns - 1000)

    assert _times(records) == list(stage.truth().get(parent, ()))
    assert not any(isinstance(record, ChildPartitionsRecord) for record in records)


def _flat(query: Iterator[list[StreamRecord]]) -> Iterator[StreamRecord]:
    return (item for response in islice(query, _RESPONSES_MAX) for item in response)


def _whole(stage, token: str, start_ns: int, end_ns: int | None = None) -> list[StreamRecord]:
    query = stage.query(token, start_ns, end_ns)
    items = list(_flat(query))
    assert next(query, None) is None, "the query does not end"
    return items


def _some(stage, token: str, start_ns: int, *, records: int) -> list[StreamRecord]:
    items: list[StreamRecord] = []
    query = _flat(stage.query(token, start_ns))
    while sum(isinstance(item, DataChangeRecord) for item in items) < records:
        items.append(next(query))
    return items


def _times(items: Sequence[StreamRecord]) -> list[int]:
    return [item.commit_timestamp_ns for item in items if isinstance(item, DataChangeRecord)]


def _children(items: Sequence[StreamRecord]) -> set[ChildPartition]:
    records = [item for item in items if isinstance(item, ChildPartitionsRecord)]
    assert records, "no child partitions record"
    return {child for record in records for child in record.children}


def _token_with_records(stage, count: int) -> str:
    for _ in range(100):
        stage.commit()
        for token, times in stage.truth().items():
            if len(set(times)) >= count:
                return token
    raise AssertionError(f"no stream partition has {count} records")
