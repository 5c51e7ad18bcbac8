from __future__ import annotations

import pytest
from google.cloud.spanner_admin_instance_v1 import types as instance_admin

from spanner_simulator.errors import Code, SpannerError

INSTANCE = "projects/p/instances/inst"


def test_instances(rig) -> None:
    get = instance_admin.GetInstanceRequest.pb()(name=INSTANCE)
    listed = instance_admin.ListInstancesRequest.pb()(parent="projects/p")
    configs = instance_admin.ListInstanceConfigsRequest.pb()(parent="projects/p")
    config = instance_admin.GetInstanceConfigRequest.pb()(name="projects/p/instanceConfigs/c")

    assert rig.run(rig.instances.get_instance(get)).name == INSTANCE
    assert len(rig.run(rig.instances.list_instances(listed)).instances) == 1
    assert rig.run(rig.instances.list_instance_configs(configs)).instance_configs
    assert rig.run(rig.instances.get_instance_config(config)).name.endswith("/c")
    rig.run(rig.instances.delete_instance(instance_admin.DeleteInstanceRequest.pb()(name=INSTANCE)))
    assert rig.host.databases == {}
    with pytest.raises(SpannerError, match="Instance not found"):
        rig.run(rig.instances.get_instance(get))


@pytest.mark.parametrize(
    ("instance_id", "code"), [("inst", Code.ALREADY_EXISTS), ("X", Code.INVALID_ARGUMENT)]
)
def test_instances_that_cannot_be_made(rig, instance_id: str, code: Code) -> None:
    request = instance_admin.CreateInstanceRequest.pb()(
        parent="projects/p", instance_id=instance_id
    )
    with pytest.raises(SpannerError) as caught:
        rig.run(rig.instances.create_instance(request))

    assert caught.value.code is code
