from __future__ import annotations

import pytest
from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.admin.operations import (
    OperationsService,
    done_operation,
    operation_name,
)


@pytest.fixture
def service(empty_rig) -> OperationsService:
    for number in range(3):
        done_operation(
            empty_rig.host,
            f"a/operations/{number}",
            metadata=empty_pb2.Empty(),
            outcome=empty_pb2.Empty(),
        )
    return OperationsService(empty_rig.host)


def test_operations_are_listed_by_page(service: OperationsService, empty_rig) -> None:
    first = empty_rig.run(
        service.list_operations(operations_pb2.ListOperationsRequest(name="a", page_size=2))
    )
    rest = empty_rig.run(
        service.list_operations(
            operations_pb2.ListOperationsRequest(
                name="a/operations", page_token=first.next_page_token
            )
        )
    )

    assert [one.name[-1] for one in first.operations] == ["0", "1"]
    assert [one.name[-1] for one in rest.operations] == ["2"]
    assert rest.next_page_token == ""


def test_operations_are_cancelled_in_vain_and_deleted(service: OperationsService, empty_rig):
    name = "a/operations/1"
    run = empty_rig.run
    run(service.cancel_operation(operations_pb2.CancelOperationRequest(name=name)))
    assert run(service.get_operation(operations_pb2.GetOperationRequest(name=name))).done
    run(service.delete_operation(operations_pb2.DeleteOperationRequest(name=name)))
    for act in (
        service.get_operation(operations_pb2.GetOperationRequest(name=name)),
        service.cancel_operation(operations_pb2.CancelOperationRequest(name=name)),
        service.delete_operation(operations_pb2.DeleteOperationRequest(name=name)),
    ):
        with pytest.raises(SpannerError, match="Operation not found: a/operations/1"):
            run(act)


def test_names_of_our_own_are_distinct(empty_rig) -> None:
    names = set()
    for _ in range(3):
        name = operation_name(empty_rig.host, "a")
        done_operation(empty_rig.host, name, metadata=empty_pb2.Empty(), outcome=empty_pb2.Empty())
        names.add(name)
    del empty_rig.host.operations[min(names)]

    assert operation_name(empty_rig.host, "a") not in names - {min(names)}


def test_an_error_is_an_outcome(empty_rig) -> None:
    operation = done_operation(
        empty_rig.host,
        "a/operations/x",
        metadata=empty_pb2.Empty(),
        outcome=SpannerError(Code.FAILED_PRECONDITION, "no"),
    )

    assert operation.WhichOneof("result") == "error"
    assert (operation.error.code, operation.error.message) == (9, "no")


def test_filters_are_refused_and_not_ignored(service: OperationsService, rig) -> None:
    instance = "projects/p/instances/inst"
    refused = [
        service.list_operations(operations_pb2.ListOperationsRequest(name="a", filter="done:true")),
        rig.databases.list_database_operations(
            database_admin.ListDatabaseOperationsRequest.pb()(parent=instance, filter="done:true")
        ),
        rig.instances.list_instances(
            instance_admin.ListInstancesRequest.pb()(parent="projects/p", filter="name:x")
        ),
    ]
    for answer in refused:
        with pytest.raises(SpannerError, match="does not support: filters of") as caught:
            rig.run(answer)
        assert caught.value.code is Code.UNIMPLEMENTED
