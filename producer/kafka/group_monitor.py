"""Asks the brokers for a description of the consumer group, without waiting for it.

An answer that is late is dropped: it may describe the group as it was before this process was
suspended, and a process that has been replaced meanwhile must not take its name back.

It is asked on a thread of its own because the request blocks.
"""

from __future__ import annotations

import struct
from concurrent.futures import Future
from threading import Thread
from typing import Any

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, GroupMetadata

from tidegate.producer.core.events import GroupDescribed
from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.producer.kafka.group_members import describe_group, member_name
from tidegate.schemas.instants import US_PER_SECOND

_INTERVAL_US = 10 * US_PER_SECOND
_AGE_MAX_US = 8 * US_PER_SECOND
_log = structlog.get_logger()


class GroupMonitor:
    """Delivers a description of one consumer group every ten seconds; for one thread."""

    def __init__(self, admin: SharedAdmin, *, group: str, worker: str, client_id: str) -> None:
        """Prepare; `client_id` is that of this worker's consumer."""
        self._admin = admin
        self._group = group
        self._worker = worker
        self._client_id = client_id
        self._asked: AdminClient | None = None
        self._answer: Future[GroupMetadata | None] | None = None
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
            asked, self._asked = self._asked, None  # another user may drop it meanwhile
            if age_us < _AGE_MAX_US:
                return self._described(answer, asked)
            self._admin.replace(asked)  # longer than its own time-out: it may be stuck
        if self._answer is None and age_us >= _INTERVAL_US:
            self._asked_us = now_us
            self._answer = self._ask()
        return None

    def _ask(self) -> Future[GroupMetadata | None]:
        admin = self._asked = self._admin.client()
        answer: Future[GroupMetadata | None] = Future()

        def ask() -> None:
            try:
                answer.set_result(describe_group(admin, self._group))
            except BaseException as error:  # noqa: BLE001 - raised where the answer is looked at
                answer.set_exception(error)

        Thread(target=ask, name="group-monitor", daemon=True).start()
        return answer

    def _described(
        self, answer: Future[GroupMetadata | None], asked: AdminClient | None
    ) -> GroupDescribed | None:
        try:
            group: Any = answer.result()  # its fields have no types
        except KafkaException as error:
            _log.debug("group description failed", reason=str(error))
            # A client that saw a broker disconnect may never answer again.
            self._admin.replace(asked)
            return None
        if group is None:
            return None  # its coordinator is just moving
        members = {member_name(one.id): one for one in group.members}
        own = members.get(self._worker)
        return GroupDescribed(
            is_stable=group.state == "Stable",
            is_member=own is not None and own.client_id == self._client_id,
            assignments={name: _assigned(one.assignment) for name, one in members.items()},
        )


def _assigned(assignment: bytes) -> frozenset[int]:
    """Return the topic partitions of an assignment: Kafka's `ConsumerProtocolAssignment`."""
    found: set[int] = set()
    if not assignment:
        return frozenset(found)  # during a rebalance
    _, topics = struct.unpack_from(">hi", assignment)
    at = struct.calcsize(">hi")
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, at)
        at += 2 + length
        (count,) = struct.unpack_from(">i", assignment, at)
        found.update(struct.unpack_from(f">{count}i", assignment, at + 4))
        at += 4 + 4 * count
    return frozenset(found)
