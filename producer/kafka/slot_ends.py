"""Asks the broker where the slots of a progress topic end, without waiting for it.

A client whose answer is late or missing is dropped with it, for the reason that `group_monitor`
gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import structlog
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.schemas.instants import US_PER_SECOND

_TIMEOUT_S = 5.0
_AGE_MAX_US = 8 * US_PER_SECOND
_log = structlog.get_logger()


class SlotEnds:
    """The next offset of every slot for readers of what is committed; for one thread."""

    def __init__(self, admin: SharedAdmin, *, topic: str, slots: int) -> None:
        """Prepare; nothing is sent yet."""
        self._admin = admin
        self._places = [TopicPartition(topic, slot) for slot in range(slots)]
        self._asked: AdminClient | None = None
        self._asked_us = 0
        self._answers: Mapping[TopicPartition, Future[ListOffsetsResultInfo]] = {}

    def poll(self, now_us: int) -> dict[int, int] | None:
        """Return the answer to a question if it is there; ask if none is under way; never blocks.

        `now_us` is of any monotonic clock.  A question that fails is asked again by a later call.
        """
        if not self._answers:
            self._ask(now_us)
        elif all(answer.done() for answer in self._answers.values()):
            answers, self._answers = self._answers, {}
            try:
                return {place.partition: found.result().offset for place, found in answers.items()}
            except KafkaException as error:
                _log.debug("ends of slots not described", reason=str(error))
                self._admin.replace(self._asked)
        elif now_us - self._asked_us >= _AGE_MAX_US:
            self._answers = {}
            self._admin.replace(self._asked)
        return None

    def _ask(self, now_us: int) -> None:
        self._asked, self._asked_us = self._admin.client(), now_us
        self._answers = self._asked.list_offsets(
            {place: OffsetSpec.latest() for place in self._places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT_S,
        )
