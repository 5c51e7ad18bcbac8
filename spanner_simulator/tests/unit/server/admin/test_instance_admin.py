from __future__ import annotations

import pytest
from google.cloud.spanner_admin_instance_v1 import types as instance_admin

from spanner_simulator.errors import SpannerError

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
