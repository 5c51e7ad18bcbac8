"""Asks the group's coordinator for a description of the consumer group, without waiting for it.

An answer that is late is dropped: it may describe the group as it was before this process was
suspended, and a process that has been replaced meanwhile must not take its name back.

Its `AdminClient` is dropped too: librdkafka ends the process where a broker disconnects that still
owes the answer to a question which has timed out (its issue 4605).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.producer.core.events import GroupDescribed
from tidegate.schemas.instants import US_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import ConsumerGroupDescription

__all__ = ["GroupMonitor"]

_INTERVAL_US = 10 * US_PER_SECOND
_TIMEOUT_S = 5.0
_AGE_MAX_US = 8 * US_PER_SECOND
_log = structlog.get_logger()


class GroupMonitor:
    """Delivers a description of one consumer group every ten seconds; for one thread."""

    def __init__(
        self, config: Mapping[str, Any], *, group: str, worker: str, client_id: str
    ) -> None:
        """Prepare; `config` is an admin client's, `client_id` that of this worker's consumer."""
        self._config = dict(config)
        self._group = group
        self._worker = worker
        self._client_id = client_id
        self._admin: AdminClient | None = None
        self._answer: Future[ConsumerGroupDescription] | None = None
        self._asked_us: int | None = None

    def poll(self, now_us: int) -> GroupDescribed | None:
        """Return a description that arrived, or ask for one if it is time; never blocks.

        `now_us` is of any monotonic clock.  The first question comes one interval after the first
        call, since joining takes a moment.
        """
        if self._asked_us is None:
            self._asked_us = now_us
        age_us = now_us - self._asked_us
        if self._answer is not None and (self._answer.done() or age_us >= _AGE_MAX_US):
            answer, self._answer = self._answer, None
            if age_us < _AGE_MAX_US:
                return self._described(answer)
            self._admin = None  # as the module's text says
        if self._answer is None and age_us >= _INTERVAL_US:
            self._asked_us = now_us
            self._admin = self._admin or AdminClient(self._config)
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_TIMEOUT_S)
            self._answer = asked[self._group]
        return None

    def _described(self, answer: Future[ConsumerGroupDescription]) -> GroupDescribed | None:
        try:
            group = answer.result()
        except KafkaException as error:
            _log.debug("group description failed", reason=str(error))
            self._admin = None  # a client that saw a broker disconnect may never answer again
            return None
        members = {one.group_instance_id or one.member_id: one for one in group.members}
        own = members.get(self._worker)
        return GroupDescribed(
            is_stable=group.state is ConsumerGroupState.STABLE,
            is_member=own is not None and own.client_id == self._client_id,
            assignments={
                name: frozenset(place.partition for place in one.assignment.topic_partitions)
                for name, one in members.items()
            },
        )
