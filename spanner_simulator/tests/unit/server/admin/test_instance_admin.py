from __future__ import annotations

import pytest
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.iam.v1 import iam_policy_pb2

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


def update(rig, *paths: str, **fields):
    request = instance_admin.UpdateInstanceRequest.pb()(instance={"name": INSTANCE, **fields})
    request.field_mask.paths.extend(paths)
    return rig.run(rig.instances.update_instance(request))


def instance(rig):
    request = instance_admin.GetInstanceRequest.pb()(name=INSTANCE)
    return rig.run(rig.instances.get_instance(request))


def test_an_update_changes_what_the_mask_names(rig) -> None:
    update(rig, "node_count", node_count=3, display_name="ignored")
    update(rig, "labels", labels={"a": "b"})
    changed = instance(rig)

    assert (changed.node_count, changed.processing_units) == (3, 3000)
    assert changed.display_name == ""
    assert dict(changed.labels) == {"a": "b"}
    update(rig, "processing_units", processing_units=500)
    assert (instance(rig).node_count, instance(rig).processing_units) == (0, 500)


def test_an_update_may_name_the_config_that_the_instance_has(rig) -> None:
    config = instance(rig).config
    update(rig, "config", config=config)

    assert instance(rig).config == config


def test_an_update_without_a_mask_or_of_something_else_is_refused(rig) -> None:
    with pytest.raises(SpannerError, match="field_mask"):
        update(rig, node_count=3)
    with pytest.raises(SpannerError, match="updates of an instance's config"):
        update(rig, "config", config="x")
    with pytest.raises(SpannerError, match="never negative"):
        update(rig, "node_count", node_count=-1)
    assert instance(rig).node_count == 1


def test_nodes_and_processing_units_may_not_contradict_each_other(rig) -> None:
    request = instance_admin.CreateInstanceRequest.pb()(
        parent="projects/p",
        instance_id="other",
        instance={"node_count": 1, "processing_units": 2000},
    )
    with pytest.raises(SpannerError, match="Only one of nodes or processing units"):
        rig.run(rig.instances.create_instance(request))


def test_everybody_has_all_permissions(rig) -> None:
    asked = iam_policy_pb2.TestIamPermissionsRequest(resource=INSTANCE, permissions=["a"])

    assert rig.run(rig.instances.test_iam_permissions(asked)).permissions == ["a"]
