from __future__ import annotations

from types import SimpleNamespace

from spanner_simulator.server.transport.methods import METHODS, method_handlers


def test_every_method_has_a_handler_of_its_kind(empty_rig) -> None:
    (handlers,) = method_handlers(empty_rig.host)
    streaming = set()
    for service, methods in METHODS.items():
        for method in methods:
            found = handlers.service(SimpleNamespace(method=f"/{service}/{method}"))
            if found.response_streaming:
                streaming.add(method)

    assert streaming == {"StreamingRead", "ExecuteStreamingSql", "BatchWrite"}


def test_any_other_method_gets_the_handler_that_refuses(empty_rig) -> None:
    (handlers,) = method_handlers(empty_rig.host)

    assert handlers.service(SimpleNamespace(method="/a.B/C")).unary_unary is not None
