"""Who is in the fleet's consumer group just now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidegate.producer.kafka.admin import RetryingAdmin

__all__ = ["group_members"]


def group_members(admin: RetryingAdmin, group: str) -> list[str]:
    """Return the worker names of the group's members, sorted; empty for a group without any.

    A worker that has ended is a member until its session time-out.  Blocks for a minute at most;
    raises what `RetryingAdmin.call` raises.
    """

    def ask(client: AdminClient) -> list[str]:
        answers = client.describe_consumer_groups([group], request_timeout=CALL_TIMEOUT_S)
        members = answers[group].result().members
        return sorted(one.group_instance_id or one.member_id for one in members)

    return admin.call(ask, "cannot describe the consumer group", group=group)
