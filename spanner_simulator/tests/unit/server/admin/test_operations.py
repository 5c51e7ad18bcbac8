from __future__ import annotations

import pytest
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
