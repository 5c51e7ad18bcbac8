"""A table's topic is recorded before its first record is published, and all records of it agree."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import DataTopic

_REDRIVE = "redrive"
"""The name of the process that puts parked changes back."""


def check(history: History) -> Iterator[Violation]:
    """Go through the commits in their order; what one records holds from the next one on.

    A redrive, beside which no worker publishes, may record and publish in one.
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
