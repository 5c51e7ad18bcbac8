"""Who is in the fleet's consumer group just now."""

from __future__ import annotations

import re
import warnings
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, GroupMetadata

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S, RetryingAdmin

_UUID_SUFFIX = re.compile("-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""What the broker adds to a static member's name to make a member id of it."""

warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)


def describe_group(client: AdminClient, group: str) -> GroupMetadata | None:
    """Return the group's state and members, or None if no broker knows it; blocks for 5 s at most.

    By librdkafka's former request.  The present one (`describe_consumer_groups`), like every
    request of an admin client that goes to a coordinator, ends the process when the coordinator
    disconnects at the wrong moment: librdkafka's issue 4605, in 2.16 still.

    Raises KafkaException.
    """
    found = next(iter(client.list_groups(group, CALL_TIMEOUT_S)), None)
    if found is not None and found.error is not None:
        raise KafkaException(found.error)
    return found


def member_name(member_id: str) -> str:
    """Return the name of a static member, which is its worker's; of another one, its client id."""
    return _UUID_SUFFIX.sub("", member_id)


def group_members(admin: RetryingAdmin, group: str) -> list[str]:
    """Return the worker names of the group's members, sorted; empty for a group without any.

    A worker that has ended is a member until its session time-out.  Blocks for a minute at most;
    raises what `RetryingAdmin.call` raises.
    """

    def ask(client: AdminClient) -> list[str]:
        found: Any = describe_group(client, group)  # its fields have no types
        return [] if found is None else sorted(member_name(one.id) for one in found.members)

    return admin.call(ask, "cannot describe the consumer group", group=group)
