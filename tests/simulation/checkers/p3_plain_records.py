"""P3: data topics hold data only, which any reader with the schemas understands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import DataTopic


def values(history: History) -> Iterator[Violation]:
    """What a data record says is what was committed: kind, key, columns, and each value."""
    committed = {change.order_key: change for change in history.committed}
    for record in history.published:
        if record.is_copy:
            continue  # no worker wrote it
        change = committed.get(record.order_key)
        if change is None or change.columns is None or record.columns is None:
            continue
        said = (record.topic, record.key, record.mod, dict(record.columns))
        meant = (change.topic, change.key, change.mod, dict(change.columns))
        if said != meant:
            yield Violation(f"says {said} where {meant} was committed", record.order_key)


def schema_growth(history: History) -> Iterator[Violation]:
    """Value schemas only grow: a higher id has every field of a lower one, of the same type."""
    for topic, schemas in history.value_schemas.items():
        for (lower, earlier), (higher, later) in pairwise(sorted(schemas.items())):
            lacking = sorted(name for name in earlier if later.get(name) != earlier[name])
            if lacking:
                yield Violation(f"{topic}: schema {higher} lacks {lacking} of schema {lower}")


def tombstones(history: History) -> Iterator[Violation]:
    """Behind each DELETE stands its tombstone, in the same transaction; nothing else has one."""
    for change in history.published:
        if change.has_tombstone is None or change.is_copy:
            continue
        if change.has_tombstone != (history.tombstones and change.mod == "D"):
            what = "a tombstone" if change.has_tombstone else "no tombstone"
            yield Violation(f"{what} behind a change of kind {change.mod}", change.order_key)
    for topic, number, offset in history.lone_tombstones:
        yield Violation(f"a tombstone that follows no change of its key: {topic}/{number}@{offset}")


_REDRIVE = "redrive"  # the name of the process that puts parked changes back


def tables(history: History) -> Iterator[Violation]:
    """A table's topic is recorded before it is published to, and all records of it agree.

    What a commit records holds from the next one on.  A redrive, beside which no worker publishes,
    may record and publish in one.
    """
    recorded: dict[str, DataTopic] = {}
    unrecorded: set[str] = set()
    for one in history.fenced:
        own = {data_topic.topic for data_topic in one.fixed} if one.worker == _REDRIVE else set()
        if history.are_tables_recorded:
            for topic in sorted(one.topics - recorded.keys() - unrecorded - own):
                unrecorded.add(topic)
                yield Violation(f"{one.worker} published to {topic}, which was not recorded")
        for data_topic in one.fixed:
            first = recorded.setdefault(data_topic.topic, data_topic)
            if first != data_topic:
                yield Violation(f"{one.worker} recorded {data_topic}, before it {first} was")
