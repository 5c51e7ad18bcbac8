"""Asks the broker for a description of the stream's topics, without waiting for it.

A client whose answer is late is dropped with it, for the reason that `group_monitor` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from tidegate.producer.core.events import AccessDenied, TopicsObserved, TopicState
from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.program.kafka_errors import is_denied
from tidegate.schemas.instants import US_PER_SECOND

_INTERVAL_US = 10 * US_PER_SECOND
_TIMEOUT_S = 5.0
_AGE_MAX_US = 8 * US_PER_SECOND
_log = structlog.get_logger()


class TopicMonitor:
    """Delivers a description of the topics every ten seconds; for one thread."""

    def __init__(self, admin: SharedAdmin, *, progress: str, data: Sequence[str]) -> None:
        """Prepare; nothing is sent yet."""
        self._admin = admin
        self._topics = [progress, *data]
        self._asked: AdminClient | None = None
        self._answers: Mapping[str, Future[TopicDescription]] = {}
        self._asked_us: int | None = None
        self._failed: dict[str, str] = {}
        """Topic -> why its description failed last, as it was logged."""

    def add(self, topic: str) -> None:
        """Describe one more data topic, from the next question on."""
        self._topics.append(topic)

    def poll(self, now_us: int) -> TopicsObserved | AccessDenied | None:
        """Return a description, or ask for one if it is time; never blocks.

        A data topic whose description failed is left out of it; without that of the progress topic
        there is none.
        `now_us` is of any monotonic clock.  The first question comes one interval after the first
        call: the topics were compared when the worker started.
        """
        if self._asked_us is None:
            self._asked_us = now_us
        age_us = now_us - self._asked_us
        if self._answers and all(answer.done() for answer in self._answers.values()):
            answers, self._answers = self._answers, {}
            asked, self._asked = self._asked, None  # another user may drop it meanwhile
            if age_us < _AGE_MAX_US:
                return self._observed(answers, asked)
            self._admin.replace(asked)  # as the module's text says
        if age_us >= _INTERVAL_US:
            if self._answers:
                self._admin.replace(self._asked)
            self._asked_us = now_us
            self._asked = self._admin.client()
            self._answers = self._asked.describe_topics(
                TopicCollection(self._topics), request_timeout=_TIMEOUT_S
            )
        return None

    def _observed(
        self, answers: Mapping[str, Future[TopicDescription]], asked: AdminClient | None
    ) -> TopicsObserved | AccessDenied | None:
        states: list[TopicState] = []
        failed: dict[str, str] = {}
        progress: TopicState | None = None
        for topic in answers:
            try:
                found = answers[topic].result()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if is_denied(reason):
                    return AccessDenied(f"topic {topic}", reason.str())
                if reason.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    failed[topic] = reason.str()
                    continue
                state = TopicState(topic, None, 0)
            else:
                state = TopicState(topic, str(found.topic_id), len(found.partitions))
            if topic == self._topics[0]:
                progress = state
            else:
                states.append(state)
        self._note_failed(failed)
        if failed:
            # A client that saw a broker disconnect may never answer.
            self._admin.replace(asked)
        return None if progress is None else TopicsObserved(progress, tuple(states))

    def _note_failed(self, failed: dict[str, str]) -> None:
        """Log what failed, once for as long as it stays the same for a topic."""
        for topic, reason in failed.items():
            if self._failed.get(topic) != reason:
                _log.warning("topic description failed", topic=topic, reason=reason)
        self._failed = failed
