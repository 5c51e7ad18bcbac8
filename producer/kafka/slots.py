"""Reading of slots: their start and end offsets, and messages that wait for a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

import structlog
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from tidegate.producer.kafka.admin import (
    CALL_TIMEOUT_S,
    CommittedOffsets,
    RetryingAdmin,
    SharedAdmin,
)
from tidegate.program.kafka_clients import listed_offset
from tidegate.schemas.instants import US_PER_SECOND

if TYPE_CHECKING:
    from confluent_kafka import Message


class SlotRecovery:
    """Looks up offsets of the slots of one progress topic.

    Both calls raise UnreachableError, and ConfigError if an ACL is missing.
    """

    def __init__(self, admin: RetryingAdmin, committed: CommittedOffsets, *, topic: str) -> None:
        """Start with the reader of the group's committed offsets."""
        self._admin = admin
        self._committed = committed
        self._topic = topic

    def fence_offset(self, slot: int) -> int | None:
        """Return the offset that the slot's last fence committed; None if there was no fence.

        Waits while a transaction that would move it is open.
        """
        message = "cannot read the group's offsets"
        offset = self._committed.find(self._topic, slot, message, slot=slot).offset
        return int(offset) if offset >= 0 else None

    def uncommitted_end(self, slot: int) -> int:
        """Return the slot's end, including records of open transactions.

        A `read_committed` consumer's own end would come before the former owner's transaction.
        """
        place = TopicPartition(self._topic, slot)

        def ask(admin: AdminClient) -> int:
            answers = admin.list_offsets(
                {place: OffsetSpec.latest()},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=CALL_TIMEOUT_S,
            )
            return listed_offset(answers[place].result())

        return self._admin.call(ask, "cannot find the slot's end", slot=slot)


_TIMEOUT_S = 5.0
_AGE_MAX_US = 8 * US_PER_SECOND
_log = structlog.get_logger()


class SlotEnds:
    """The next offset of every slot for `read_committed` readers; for one thread."""

    def __init__(self, admin: SharedAdmin, *, topic: str, slots: int) -> None:
        """Prepare; nothing is sent yet."""
        self._admin = admin
        self._places = [TopicPartition(topic, slot) for slot in range(slots)]
        self._asked_client: AdminClient | None = None
        self._asked_us = 0
        self._answers: Mapping[TopicPartition, Future[ListOffsetsResultInfo]] = {}

    def poll(self, now_us: int) -> dict[int, int] | None:
        """Return an answer that has arrived; send a request if none is pending; never blocks.

        `now_us` is of any monotonic clock.  A failed request is repeated by a later call.
        """
        if not self._answers:
            self._ask(now_us)
        elif all(answer.done() for answer in self._answers.values()):
            answers, self._answers = self._answers, {}
            try:
                return {
                    place.partition: listed_offset(answer.result())
                    for place, answer in answers.items()
                }
            except KafkaException as error:
                _log.debug("ends of slots not described", reason=str(error))
                self._admin.replace(self._asked_client)
        elif now_us - self._asked_us >= _AGE_MAX_US:
            self._answers = {}
            self._admin.replace(self._asked_client)
        return None

    def _ask(self, now_us: int) -> None:
        client = self._asked_client = self._admin.client()
        if client is None:
            return
        self._asked_us = now_us
        self._answers = client.list_offsets(
            {place: OffsetSpec.latest() for place in self._places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT_S,
        )


class HeldMessages:
    """Messages of a client in order, held from the first one that is not ready; for one thread."""

    def __init__(self) -> None:
        """Start without messages."""
        self._held: list[Message] = []

    def __bool__(self) -> bool:
        """Whether messages wait."""
        return bool(self._held)

    def take(
        self, consume: Callable[[], list[Message]], is_ready: Callable[[Message], bool]
    ) -> Iterator[Message]:
        """Yield the held messages, or the result of `consume` if there are none.

        Ends before the first one that is not ready; it and all later ones are held.
        """
        messages = self._held or consume()
        self._held = []
        for number, message in enumerate(messages):
            if not is_ready(message):
                self._held = messages[number:]
                return
            yield message
