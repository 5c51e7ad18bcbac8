from __future__ import annotations

import http.client
import json
import socket
import threading

import pytest

from spanner_simulator import Simulator
from spanner_simulator.control.verb import verbs_of
from spanner_simulator.control.verbs import Verbs
from unit.control.conftest import Port, insert

WHERE = "database=bank&stream=Bank"
BODY = {"database": "bank", "stream": "Bank"}


def test_the_root_lists_the_verbs(port: Port) -> None:
    status, body = port.get("/")
    split = next(verb for verb in body["verbs"] if verb["path"] == "/split")
    assert status == 200
    assert {verb["path"] for verb in body["verbs"]} == {f"/{name}" for name in verbs_of(Verbs)}
    assert split["method"] == "POST"
    assert split["arguments"][0] == {"name": "database", "type": "a string", "required": True}
    assert split["arguments"][2] == {
        "name": "token",
        "type": "a string",
        "required": False,
        "default": None,
    }


def test_a_question_and_an_action(port: Port) -> None:
    status, split = port.post("/split", {**BODY, "table": "A", "key": ["6"]})
    _, listed = port.get(f"/stream-partitions?{WHERE}&ended=true")
    assert (status, split["children"][0]["high"]["key"]) == (200, ["6"])
    assert len(listed["stream_partitions"]) == 4


def test_the_commit_log_is_followed(port: Port, simulator: Simulator) -> None:
    writer = threading.Timer(0.1, insert, (simulator, 9))
    writer.start()
    status, lines = port.get(f"/follow-commit-log?{WHERE}&from=1&idle_ms=1000")
    writer.join()
    assert status == 200
    assert [line["changes"][0]["keys"]["K"] for line in lines] == ["7", "9"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/split", {"database": "nope", "stream": "Bank"}, 404),
        ("/split", {"database": "bank"}, 400),
        ("/split", {**BODY, "bogus": 1}, 400),
        ("/split", b"[", 400),
        ("/split", b"[]", 400),
        ("/health", {}, 400),
        ("/nothing", {}, 404),
        # Without a body it is a question.
        (f"/commit-log?{WHERE}&from=x", None, 400),
        (f"/stream-partitions?{WHERE}&ended=maybe", None, 400),
        ("/follow-commit-log?database=bank&stream=Nope", None, 404),
        ("/split", None, 400),
        ("/nothing", None, 404),
    ],
)
def test_refusals(port: Port, path: str, body: object, status: int) -> None:
    found, answer = port.get(path) if body is None else port.post(path, body)
    assert found == status
    assert sorted(answer) == ["code", "message"]
    assert answer["message"]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/freeze", {"Content-Length": "\xb2"}),
        ("POST", "/freeze", {"Content-Length": "9" * 5000}),
        ("POST", "/advance", {"Transfer-Encoding": "chunked"}),
        ("POST", "/reset?by_ms=1", {"Content-Length": "0"}),
        ("GET", f"/commit-log?{WHERE}&database=other", {}),
        ("GET", f"/commit-log?{WHERE}", {"Content-Length": "13"}),
    ],
)
def test_nothing_of_a_request_is_passed_over(
    simulator: Simulator, method: str, path: str, headers: dict[str, str]
) -> None:
    connection = http.client.HTTPConnection(simulator.control_address, timeout=60)
    connection.putrequest(method, path)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()

    reply = connection.getresponse()
    assert (reply.status, json.loads(reply.read())["code"]) == (400, "INVALID_ARGUMENT")
    connection.close()


@pytest.mark.parametrize(
    ("origin", "host", "is_taken"),
    [
        (None, "127.0.0.1:1", True),
        ("http://127.0.0.1:1", "127.0.0.1:1", True),
        ("http://[::1]:1", "[::1]:1", True),
        ("http://localhost:1", "localhost:1", True),
        ("https://localhost:1", "localhost:1", False),
        ("https://page.example", "127.0.0.1:1", False),
        # A name that its owner lets resolve to this machine.
        ("http://page.example:1", "page.example:1", False),
        ("http://[", "[", False),
    ],
)
def test_a_page_of_another_origin_changes_and_reads_nothing(
    simulator: Simulator, origin: str | None, host: str, is_taken: bool
) -> None:
    for method, path in (("POST", "/reset"), ("GET", "/health")):
        connection = http.client.HTTPConnection(simulator.control_address, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host)
        if origin is not None:
            connection.putheader("Origin", origin)
        connection.putheader("Content-Length", "0")
        connection.endheaders()

        reply = connection.getresponse()
        answer = json.loads(reply.read())
        connection.close()
        assert reply.status == (200 if is_taken else 403), answer
        assert is_taken or answer["code"] == "PERMISSION_DENIED"
        assert is_taken or simulator.health()["databases"] != []


def test_an_action_whose_body_was_cut_off_does_not_happen(simulator: Simulator) -> None:
    """What has arrived may be valid, and still not be what the client meant."""
    host, _, port = simulator.control_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"POST /reset HTTP/1.1\r\nContent-Length: 100\r\n\r\n{}")
        client.shutdown(socket.SHUT_WR)
        reply = http.client.HTTPResponse(client)
        reply.begin()
        answer = json.loads(reply.read())
    assert (reply.status, answer["message"]) == (400, "The body ended after 2 of 100 bytes.")
    assert simulator.health()["databases"] != []
