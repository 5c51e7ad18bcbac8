"""Descriptions of the consumer group and of the topics, requested without blocking.

A late answer is dropped: it may describe the group before this process was suspended, and a process
that has been replaced since must not take its name back.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, GroupMetadata, TopicDescription

from tidegate.producer.core.events import AccessDenied, GroupDescribed, TopicsObserved, TopicState
from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.producer.kafka.group import describe_group, member_name
from tidegate.program.kafka_errors import is_denied
from tidegate.schemas.instants import US_PER_SECOND

_INTERVAL_US = 10 * US_PER_SECOND
_AGE_MAX_US = 8 * US_PER_SECOND
_log = structlog.get_logger()


class GroupMonitor:
    """Delivers a description of one consumer group every ten seconds; for one thread."""

    def __init__(self, admin: SharedAdmin, *, group: str, worker: str, client_id: str) -> None:
        """Prepare; `client_id` identifies this worker's consumer."""
        self._admin = admin
        self._group = group
        self._worker = worker
        self._client_id = client_id
        self._asked_client: AdminClient | None = None
        self._answer: Future[GroupMetadata | None] | None = None
        self._asked_us: int | None = None

    def poll(self, now_us: int) -> GroupDescribed | None:
        """Return a description that arrived, or request one if it is due; never blocks.

        `now_us` is of any monotonic clock.  The first request is one interval after the first call,
        because joining takes a moment.
        """
        if self._asked_us is None:
            self._asked_us = now_us
        age_us = now_us - self._asked_us
        if self._answer is not None and (self._answer.done() or age_us >= _AGE_MAX_US):
            answer, self._answer = self._answer, None
            # Another user of the client may drop it meanwhile.
            client, self._asked_client = self._asked_client, None
            if age_us < _AGE_MAX_US:
                return self._described(answer, client)
            self._admin.replace(client)  # longer than its own time-out: it may hang
        if self._answer is None and age_us >= _INTERVAL_US:
            client = self._asked_client = self._admin.client()
            if client is not None:
                self._asked_us = now_us
                self._answer = self._ask(client)
        return None

    def _ask(self, admin: AdminClient) -> Future[GroupMetadata | None]:
        answer: Future[GroupMetadata | None] = Future()

        def ask() -> None:
            try:
                answer.set_result(describe_group(admin, self._group))
            except BaseException as error:  # noqa: BLE001 - raised where the answer is looked at
                answer.set_exception(error)

        Thread(target=ask, name="group-monitor", daemon=True).start()
        return answer

    def _described(
        self, answer: Future[GroupMetadata | None], client: AdminClient | None
    ) -> GroupDescribed | None:
        try:
            group: Any = answer.result()  # its fields have no types
        except KafkaException as error:
            _log.debug("group description failed", reason=str(error))
            # A client that saw a broker disconnect may never answer again.
            self._admin.replace(client)
            return None
        if group is None:
            return None  # its coordinator is being moved
        members = {member_name(member.id): member for member in group.members}
        own_member = members.get(self._worker)
        return GroupDescribed(
            is_stable=group.state == "Stable",
            is_member=own_member is not None and own_member.client_id == self._client_id,
            assignments={name: _assigned(member.assignment) for name, member in members.items()},
        )


def _assigned(assignment: bytes) -> frozenset[int]:
    """Return the topic partitions of an assignment (Kafka's `ConsumerProtocolAssignment`)."""
    slots: set[int] = set()
    if not assignment:
        return frozenset(slots)  # during a rebalance
    _, topics = struct.unpack_from(">hi", assignment)
    start = struct.calcsize(">hi")
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, start)
        start += 2 + length
        (count,) = struct.unpack_from(">i", assignment, start)
        slots.update(struct.unpack_from(f">{count}i", assignment, start + 4))
        start += 4 + 4 * count
    return frozenset(slots)


_TIMEOUT_S = 5.0


class TopicMonitor:
    """Delivers a description of the topics every ten seconds; for one thread."""

    def __init__(self, admin: SharedAdmin, *, progress: str, data: Sequence[str]) -> None:
        """Prepare; nothing is sent yet."""
        self._admin = admin
        self._topics = [progress, *data]
        self._asked_client: AdminClient | None = None
        self._answers: Mapping[str, Future[TopicDescription]] = {}
        self._asked_us: int | None = None
        self._failed: dict[str, str] = {}
        """Topic -> the reason for its last failed description, as logged."""

    def add(self, topic: str) -> None:
        """Describe one more data topic, from the next request on."""
        self._topics.append(topic)

    def poll(self, now_us: int) -> TopicsObserved | AccessDenied | None:
        """Return a description, or request one if it is due; never blocks.

        A data topic whose description failed is left out of it; if that of the progress topic
        failed, there is none.  `now_us` is of any monotonic clock.  The first request is one
        interval after the first call: the topics were compared when the worker started.
        """
        if self._asked_us is None:
            self._asked_us = now_us
        age_us = now_us - self._asked_us
        if self._answers and all(answer.done() for answer in self._answers.values()):
            answers, self._answers = self._answers, {}
            # Another user of the client may drop it meanwhile.
            client, self._asked_client = self._asked_client, None
            if age_us < _AGE_MAX_US:
                return self._observed(answers, client)
            self._admin.replace(client)  # see the module's docstring
        if age_us >= _INTERVAL_US:
            if self._answers:
                self._admin.replace(self._asked_client)
                self._answers = {}
            client = self._asked_client = self._admin.client()
            if client is not None:
                self._asked_us = now_us
                self._answers = client.describe_topics(
                    TopicCollection(self._topics), request_timeout=_TIMEOUT_S
                )
        return None

    def _observed(
        self, answers: Mapping[str, Future[TopicDescription]], client: AdminClient | None
    ) -> TopicsObserved | AccessDenied | None:
        states: list[TopicState] = []
        failed: dict[str, str] = {}
        progress: TopicState | None = None
        for topic in answers:
            try:
                description = answers[topic].result()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if is_denied(reason):
                    return AccessDenied(f"topic {topic}", reason.str())
                if reason.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    failed[topic] = reason.str()
                    continue
                state = TopicState(topic, None, 0)
            else:
                state = TopicState(topic, str(description.topic_id), len(description.partitions))
            if topic == self._topics[0]:
                progress = state
            else:
                states.append(state)
        self._note_failed(failed)
        if failed:
            # A client that saw a broker disconnect may never answer.
            self._admin.replace(client)
        return None if progress is None else TopicsObserved(progress, tuple(states))

    def _note_failed(self, failed: dict[str, str]) -> None:
        """Log a failure, once while it stays the same for a topic."""
        for topic, reason in failed.items():
            if self._failed.get(topic) != reason:
                _log.warning("topic description failed", topic=topic, reason=reason)
        self._failed = failed
