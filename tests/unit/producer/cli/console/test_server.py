"""The web application: who is answered, and with which headers."""

import http.client
import io

import pytest

from tests.unit.producer.cli.console.conftest import RUNNING
from tidegate.producer.cli.console.config import ConsoleConfig, is_loopback
from tidegate.producer.cli.console.server import Application, _static
from tidegate.program.settings import InvalidSettings
from tidegate.program.web_server import WebServer

TOKEN = "a long secret"


def ask(application, path="/", *, method="GET", host="127.0.0.1:8600", body=b"", **headers):
    query = path.partition("?")[2]
    answered = []
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path.partition("?")[0],
        "QUERY_STRING": query,
        "HTTP_HOST": host,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        **{f"HTTP_{name.upper()}": value for name, value in headers.items()},
    }
    content = b"".join(application(environ, lambda status, found: answered.append((status, found))))
    ((status, found),) = answered
    return int(status[:3]), dict(found), content.decode()


@pytest.fixture
def application(console):
    console.show(RUNNING)
    return Application(console.pages, token="")


@pytest.fixture
def guarded(console):
    console.show(RUNNING)
    return Application(console.pages, token=TOKEN)


def test_a_page_is_served_with_a_strict_policy(application):
    status, headers, content = ask(application)
    assert status == 200
    assert "Overview" in content
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Length"] == str(len(content.encode()))


@pytest.mark.parametrize("name", ["console.css", "console.js", "icon.svg"])
def test_its_own_files_are_served(application, name):
    status, _, content = ask(application, f"/static/{name}")
    assert status == 200
    assert content


@pytest.mark.parametrize("path", ["/nowhere", "/static/../config.py", "/static/"])
def test_nothing_else_is_served(application, path):
    assert ask(application, path)[0] == 404


def test_names_of_files_that_do_not_exist_are_not_kept(application):
    before = _static.cache_info().currsize
    for number in range(10):
        assert ask(application, f"/static/{number}")[0] == 404
    assert _static.cache_info().currsize == before


def test_head_has_no_body(application):
    status, headers, content = ask(application, method="HEAD")
    assert (status, content) == (200, "")
    assert int(headers["Content-Length"]) > 0


def test_it_only_shows(application):
    assert ask(application, method="POST", body=b"x=1")[0] == 405


@pytest.mark.parametrize("host", ["localhost:8600", "[::1]:8600", "127.0.0.1"])
def test_this_machine_is_answered(application, host):
    assert ask(application, host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example:8600", "", "127.0.0.1.evil.example", "[:"])
def test_a_name_that_another_site_has_given_this_machine_is_not(application, host):
    assert ask(application, host=host)[0] == 403


def test_a_token_is_asked_for(guarded):
    status, _, content = ask(guarded, host="console.example")
    assert status == 401
    assert "Running" not in content
    assert 'type="password"' in content


def test_a_browser_signs_in_once(guarded):
    body = b"token=a+long+secret"
    status, headers, _ = ask(guarded, "/sign-in", method="POST", body=body)
    assert (status, headers["Location"]) == (303, "/")
    assert TOKEN not in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    assert ask(guarded, cookie=cookie)[0] == 200
    assert ask(guarded, cookie=f"{cookie}0")[0] == 401


@pytest.mark.parametrize("body", [b"", b"token=wrong", b"token=%ff", b"\xff\xfe"])
def test_a_wrong_token_is_refused(guarded, body):
    status, headers, content = ask(guarded, "/sign-in", method="POST", body=body)
    assert status == 401
    assert "Set-Cookie" not in headers
    assert "not the token" in content


@pytest.mark.parametrize("length", ["-1", "1000000000", "x", ""])
def test_a_form_of_any_length_is_read_up_to_a_limit(guarded, length):
    read = []

    class Body:
        def read(self, size):
            read.append(size)
            return b""

    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/sign-in",
        "HTTP_HOST": "console.example",
        "CONTENT_LENGTH": length,
        "wsgi.input": Body(),
    }
    assert b"".join(guarded(environ, lambda *_: None))
    assert 0 <= read[0] <= 4_096


def test_a_script_sends_it_as_a_bearer_token(guarded):
    assert ask(guarded, authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(guarded, authorization="Bearer wrong")[0] == 401
    assert ask(guarded, authorization="Basic x", cookie="a=\x01;;")[0] == 401


def test_without_a_token_nobody_signs_in(application):
    assert ask(application, "/sign-in", method="POST", body=b"token=")[0] == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "console.example", "::"])
def test_another_address_needs_a_token(host, monkeypatch):
    with pytest.raises(InvalidSettings, match="TIDEGATE_CONSOLE_TOKEN"):
        ConsoleConfig.load(host=host)
    monkeypatch.setenv("TIDEGATE_CONSOLE_TOKEN", TOKEN)
    config = ConsoleConfig.load(host=host)
    assert TOKEN not in repr(config)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_a_loopback_address_needs_none(host):
    assert is_loopback(host)
    assert ConsoleConfig.load(host=host).host == host


def test_it_is_served_over_http(application):
    with WebServer(application, "127.0.0.1", 0, settings="", hint="") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/partitions?minutes=5")
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"Stream partitions" in answer.read()
        connection.close()
