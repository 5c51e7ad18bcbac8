"""Compares the topics, as the broker describes them now and then, with those of the epoch.

A topic that grows would move keys between topic partitions, and one that was deleted or re-created
has lost its records.  Both are final, so the worker stops.  A topic that is missing from one
description may be unknown to a broker that has just started: it has to be missing for a while.
"""

from __future__ import annotations

from tidegate.producer.core.events import TopicsObserved, TopicState
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.errors import TopicsChangedError
from tidegate.schemas.progress import DataTopic

_PATIENCE_US = 15_000_000


class TopicWatch:
    """What one worker knows of its topics; `identity` says what they were when it started.

    A worker publishes only where its identity agrees with what the epoch recorded.
    """

    def __init__(self, identity: StreamIdentity) -> None:
        """Start without a description."""
        self._progress = identity.progress_topic_id, identity.slots
        self._data = {
            topic.topic: (topic.topic_id, topic.topic_partitions) for topic in identity.topics
        }
        self._missing_since_us: dict[str, int] = {}

    def add(self, topic: DataTopic) -> bool:
        """Compare one more data topic from now on; return whether it is new."""
        is_new = topic.topic not in self._data
        self._data.setdefault(topic.topic, (topic.topic_id, topic.topic_partitions))
        return is_new

    def handle(self, event: TopicsObserved, *, now_us: int) -> TopicsChangedError | None:
        """Return the error for topics that are certain to have changed; None without one."""
        pairs = [(event.progress, self._progress)]
        pairs += [(topic, self._data[topic.topic]) for topic in event.data]
        found = [self._difference(topic, *was, now_us=now_us) for topic, was in pairs]
        differences = [difference for difference in found if difference]
        return TopicsChangedError(differences) if differences else None

    def _difference(self, now: TopicState, topic_id: str, count: int, *, now_us: int) -> str:
        """Return what has changed about a topic; empty if nothing is certain."""
        name = now.topic
        if now.topic_id is None:
            since_us = self._missing_since_us.setdefault(name, now_us)
            is_certain = now_us - since_us >= _PATIENCE_US
            return f"topic {name} was deleted (its id was {topic_id})" if is_certain else ""
        self._missing_since_us.pop(name, None)
        if now.topic_id != topic_id:
            return f"topic {name} was re-created: its id was {topic_id}, it is {now.topic_id}"
        if now.topic_partitions != count:
            return f"topic {name} had {count} topic partitions, it has {now.topic_partitions}"
        return ""
