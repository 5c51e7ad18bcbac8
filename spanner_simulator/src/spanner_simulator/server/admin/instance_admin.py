"""google.spanner.admin.instance.v1.InstanceAdmin, as far as clients need it."""

from __future__ import annotations

import re

from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.protobuf import empty_pb2

from spanner_simulator.errors import already_exists, invalid_argument, not_found, unsupported
from spanner_simulator.server.admin.operations import done_operation, operation_name
from spanner_simulator.server.host import Host
from spanner_simulator.server.messages import Message, timestamp_message
from spanner_simulator.server.paging import page_of

_CONFIGS = ("emulator-config", "regional-simulated")
_INSTANCE_ID = re.compile(r"[a-z][a-z0-9-]{0,62}[a-z0-9]")
_UNITS_PER_NODE = 1000


class InstanceAdminService:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def create_instance(self, request: Message) -> Message:
        """Create an instance; ALREADY_EXISTS for a known one."""
        if _INSTANCE_ID.fullmatch(request.instance_id) is None:
            raise invalid_argument(
                "Instance ID must start with a lowercase letter, be 2-64 characters long, contain "
                "only lowercase letters, numbers, or hyphens, and not end with a hyphen. Got: "
                f"{request.instance_id}"
            )
        _check_project(request.parent)
        name = f"{request.parent}/instances/{request.instance_id}"
        if name in self._host.instances:
            raise already_exists(f"Instance already exists: {name}")
        instance = instance_admin.Instance.pb()()
        instance.CopyFrom(request.instance)
        instance.name = name
        instance.config = instance.config or f"{request.parent}/instanceConfigs/{_CONFIGS[0]}"
        instance.state = instance_admin.Instance.State.READY
        _complete_capacity(instance)
        created = timestamp_message(self._host.now_us())
        instance.create_time.CopyFrom(created)
        instance.update_time.CopyFrom(created)
        self._host.add_instance(name, instance)
        metadata = instance_admin.CreateInstanceMetadata.pb()(instance=instance)
        metadata.start_time.CopyFrom(created)
        metadata.end_time.CopyFrom(created)
        return done_operation(
            self._host, operation_name(self._host, name), metadata=metadata, outcome=instance
        )

    def _instance(self, name: str) -> Message:
        instance = self._host.instances.get(name)
        if instance is None:
            raise not_found(f"Instance not found: {name}")
        return instance

    async def get_instance(self, request: Message) -> Message:
        """Find an instance."""
        return self._instance(request.name)

    async def list_instances(self, request: Message) -> Message:
        """The instances of a project."""
        _refuse_filter(request.filter)
        instances = [
            instance
            for name, instance in self._host.instances.items()
            if name.startswith(request.parent + "/")
        ]
        reply = instance_admin.ListInstancesResponse.pb()()
        page, reply.next_page_token = page_of(
            instances, size=request.page_size, token=request.page_token
        )
        reply.instances.extend(page)
        return reply

    async def delete_instance(self, request: Message) -> Message:
        """Remove an instance and its databases; an unknown one is not an error."""
        if request.name in self._host.instances:
            self._host.remove_instance(request.name)
            for name in [
                operation
                for operation in self._host.operations
                if operation.startswith(request.name + "/")
            ]:
                del self._host.operations[name]
        return empty_pb2.Empty()

    async def get_instance_config(self, request: Message) -> Message:
        """Accept any configuration name, because programs use those of the real service."""
        _, separator, config = request.name.partition("/instanceConfigs/")
        if not separator or not config:
            raise invalid_argument(f"Invalid instance config: {request.name}")
        return instance_admin.InstanceConfig.pb()(name=request.name, display_name=config)

    async def list_instance_configs(self, request: Message) -> Message:
        """A few names, because some readers use this call as a probe."""
        reply = instance_admin.ListInstanceConfigsResponse.pb()()
        for config in _CONFIGS:
            reply.instance_configs.add(
                name=f"{request.parent}/instanceConfigs/{config}", display_name=config
            )
        return reply


def _check_project(parent: str) -> None:
    if re.fullmatch(r"projects/[^/]+", parent) is None:
        raise invalid_argument(f"Invalid project uri: {parent}")


def _refuse_filter(text: str) -> None:
    if text:
        raise unsupported("filters of instances")


def _complete_capacity(instance: Message) -> None:
    if not instance.processing_units:
        instance.node_count = min(instance.node_count or 1, 2**31 // _UNITS_PER_NODE - 1)
        instance.processing_units = instance.node_count * _UNITS_PER_NODE
    instance.node_count = instance.processing_units // _UNITS_PER_NODE
