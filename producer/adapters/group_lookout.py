"""Looks at the consumer group now and then, for `core.group_watch`; never waits for an answer.

An answer that is late is dropped: it may describe the group as it was before this process slept,
and a process that has been replaced meanwhile must not take its name back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.producer.core.group_watch import GroupSeen, GroupWatch, RejoinGroup, WatchLimits
from tidegate.schemas.instants import US_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import ConsumerGroupDescription

__all__ = ["GroupLookout"]

_EVERY_US = 10 * US_PER_SECOND
_TIMEOUT_S = 5.0
_LATE_US = 8 * US_PER_SECOND
_LIMITS = WatchLimits()
_log = structlog.get_logger()


class GroupLookout:
    """See the module; not for use by several threads."""

    def __init__(
        self, config: Mapping[str, Any], *, group: str, worker: str, client_id: str, slots: int
    ) -> None:
        """Prepare; `config` is an admin client's, `client_id` that of this worker's membership."""
        self._config = dict(config)
        self._group = group
        self._worker = worker
        self._client_id = client_id
        self._watch = GroupWatch(worker=worker, slots=slots, limits=_LIMITS)
        self._admin: AdminClient | None = None
        self._answer: Future[ConsumerGroupDescription] | None = None
        self._asked_us: int | None = None

    def look(self, now_us: int) -> RejoinGroup | None:
        """Take an answer in if it is there, ask if it is time; `now_us` is of any steady clock."""
        if self._asked_us is None:
            self._asked_us = now_us  # joining takes a moment
        elapsed_us = now_us - self._asked_us
        if self._answer is not None and (self._answer.done() or elapsed_us >= _LATE_US):
            answer, self._answer = self._answer, None
            return None if elapsed_us >= _LATE_US else self._judge(answer, now_us)
        if self._answer is None and elapsed_us >= _EVERY_US:
            self._asked_us = now_us
            self._admin = self._admin or AdminClient(self._config)
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_TIMEOUT_S)
            self._answer = asked[self._group]
        return None

    def _judge(self, answer: Future[ConsumerGroupDescription], now_us: int) -> RejoinGroup | None:
        try:
            described = answer.result()
        except KafkaException as error:
            _log.debug("the group cannot be described", reason=str(error))
            self._admin = None  # a client that has seen a broker go may wait for it in vain
            return None
        members = {one.group_instance_id or one.member_id: one for one in described.members}
        mine = members.get(self._worker)
        if mine is None or mine.client_id != self._client_id:
            return None
        given = {
            name: frozenset(place.partition for place in one.assignment.topic_partitions)
            for name, one in members.items()
        }
        seen = GroupSeen(is_stable=described.state is ConsumerGroupState.STABLE, slots=given)
        return self._watch.handle(seen, now_us=now_us)
