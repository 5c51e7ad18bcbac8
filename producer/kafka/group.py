"""The fleet's consumer group: members, names of workers, and how a client leaves it."""

from __future__ import annotations

import re
import threading
import time
import warnings
from contextlib import suppress
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, GroupMetadata

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S, CommittedOffsets, RetryingAdmin
from tidegate.program.calls import CallHangs, call_bounded

_UUID_SUFFIX = re.compile("-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""The suffix that the broker adds to a static member's name to make a member id."""

warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)


def describe_group(client: AdminClient, group: str) -> GroupMetadata | None:
    """Return the group's state and members; None if no broker knows it; blocks for at most 5 s.

    Uses librdkafka's older request.  The new one (`describe_consumer_groups`), like every request
    of an admin client to a coordinator, ends the process if the coordinator disconnects at the
    wrong moment: librdkafka's issue 4605, still present in 2.16.  Raises KafkaException.
    """
    metadata = next(iter(client.list_groups(group, CALL_TIMEOUT_S)), None)
    if metadata is not None and metadata.error is not None:
        raise KafkaException(metadata.error)
    return metadata


def member_name(member_id: str) -> str:
    """Return the name of a static member (its worker's), or the client id of another member."""
    return _UUID_SUFFIX.sub("", member_id)


def group_members(admin: RetryingAdmin, group: str) -> list[str]:
    """Return the worker names of the group's members, sorted; empty for a group without members.

    A worker that has ended is a member until its session time-out.  Blocks for at most a minute;
    raises the errors of `RetryingAdmin.call`.
    """

    def ask(client: AdminClient) -> list[str]:
        metadata: Any = describe_group(client, group)  # its fields have no types
        return (
            []
            if metadata is None
            else sorted(member_name(member.id) for member in metadata.members)
        )

    return admin.call(ask, "cannot describe the consumer group", group=group)


_UNUSED_OFFSET = 0


class NameClaim:
    """One process's claim to a worker's name; `process` is unique to the process.

    A claim is the metadata of an offset that a group of that name commits for topic partition 0 of
    `topic`, which must exist.  The offset itself means nothing.
    """

    def __init__(self, claims: CommittedOffsets, *, topic: str, process: str) -> None:
        """Start with the offsets of the name's group, in which claims are committed."""
        self._claims = claims
        self._topic = topic
        self._process = process

    def claim(self) -> None:
        """Write the claim over any earlier one; raises UnreachableError."""
        place = TopicPartition(self._topic, 0, _UNUSED_OFFSET, self._process)
        self._claims.write(place, "cannot claim the worker's name", name=self._claims.group)

    def has_successor(self) -> bool:
        """Whether another process claimed the name after this one; raises UnreachableError."""
        message = "cannot look up the worker's name"
        place = self._claims.find(self._topic, 0, message, name=self._claims.group)
        return (place.metadata or "") not in {"", self._process}


_POLL_S = 0.05
_QUIET_POLLS = 2
_BATCH_MAX = 500
_UNASSIGN_S = 30.0
_LEAVE_S = 10.0
"""The request to leave is sent as soon as nothing is assigned any more."""
_CLOSE_S = 15.0
"""A client that can reach the group closes in less than a second."""
_log = structlog.get_logger()


def leave_group(consumer: Consumer) -> None:
    """Revoke all assigned slots, which calls the client's callbacks, leave, and close the client.

    A client that keeps what it owns, or does not close, is abandoned: the group drops it after its
    session time-out.  Raises the errors of the callbacks.
    """
    give_up_at = time.monotonic() + _UNASSIGN_S
    leave_until = time.monotonic() + _LEAVE_S
    try:
        try:
            consumer.unsubscribe()
        except KafkaException:  # a fenced client rejects this, and owns nothing
            leave_until = 0.0
        quiet_polls = 0
        while quiet_polls < _QUIET_POLLS:
            if time.monotonic() > give_up_at:
                _log.warning("the group's client keeps its slots and is left behind")
                return
            consumer.consume(_BATCH_MAX, _POLL_S)
            is_leaving = time.monotonic() < leave_until and bool(consumer.memberid())
            quiet_polls = 0 if is_leaving or consumer.assignment() else quiet_polls + 1
        if leave_until and consumer.memberid():
            _log.warning("the group's client does not leave")
    except BaseException:
        _close(consumer)
        raise
    _close(consumer)


def keep_place(clients: list[Consumer]) -> None:
    """Drop the only references to clients; the group keeps their places until their sessions end.

    On another thread, because ending a client that hangs may hang too.  The clients' callbacks may
    still be called there.
    """
    threading.Thread(target=_drop, args=(clients,), name="kafka-discard", daemon=True).start()


def _drop(clients: list[Consumer]) -> None:
    """Run due callbacks and drop the clients; no variable may refer to one."""
    with suppress(KafkaException, RuntimeError):  # the second close of a client
        for place in range(len(clients)):
            for _ in range(_QUIET_POLLS):
                clients[place].consume(_BATCH_MAX, _POLL_S)
    clients.clear()


def _close(consumer: Consumer) -> None:
    try:
        call_bounded(consumer.close, within_s=_CLOSE_S)
    except CallHangs:
        _log.warning("the group's client does not close and is left behind")
