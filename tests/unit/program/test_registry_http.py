"""The HTTP registry, against a small server that speaks Confluent's API."""

from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate.program.calls import Rejections, RetryAfter, is_temporary
from tidegate.program.registry_http import HttpSchemaRegistry, RegistryAccess, is_foreign
from tidegate.schemas.errors import ConfigError, SchemaError, SchemaNotFound, UnreachableError
from tidegate.schemas.registry import RegisteredSchema

STRING, LONG = {"type": "string"}, {"type": "long"}


class Registry(ThreadingHTTPServer):
    """Keeps schemas; `refuse` holds (status, message) to answer with instead."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.ids, self.levels, self.asked, self.refuse = {}, {}, [], None
        self.versions = {}
        self.conflicts, self.is_compatible = 0, True
        self.is_raced = False
        self.level_conflicts, self.level_of_the_other = 0, None
        self.page = None
        self.busy_path, self.retry_after = None, None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/apis/ccompat/v7"


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""

    def _answer(self):
        server = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix("/apis/ccompat/v7").partition("?")[0]
        server.asked.append((self.command, path, self.headers.get("Authorization")))
        status, reply = 200, None
        parts = path.strip("/").split("/")
        if server.page is not None:
            self._send(*server.page, "text/html")
            return
        is_lookup = self.command == "POST" and parts[0] == "subjects" and parts[-1] != "versions"
        if server.busy_path == ("lookup" if is_lookup else parts[0]):
            status, reply = 429, {"error_code": 42901, "message": "slower"}
        elif server.refuse is not None:
            status, message, *code = server.refuse
            reply = {"error_code": (code or [status])[0], "message": message}
        elif self.command == "POST" and parts[0] == "subjects" and server.is_raced:
            text = json.loads(body)["schema"]
            status = 200 if is_lookup else 409
            found = {"subject": parts[1], "id": 77, "version": 1, "schema": text}
            reply = found if is_lookup else {"error_code": 409, "message": "already exists"}
        elif self.command == "POST" and parts[0] == "compatibility":
            reply = {"is_compatible": server.is_compatible}
            if server.is_compatible is None:
                status, reply = 404, {"error_code": 40401, "message": "no such subject"}
        elif self.command == "POST" and parts[0] == "subjects" and server.conflicts:
            server.conflicts -= not is_lookup
            status, reply = 404 if is_lookup else 409, {"error_code": 409, "message": "conflict"}
        elif self.command == "POST" and parts[0] == "subjects":
            text = json.loads(body)["schema"]
            reply = {"id": server.ids.setdefault(text, len(server.ids) + 1)}
            server.versions.setdefault(parts[1], {})[text] = None
        elif self.command == "GET" and parts[0] == "subjects" and len(parts) > 2:
            texts = list(server.versions.get(parts[1], ()))
            status, reply = 404, {"error_code": 40401, "message": "no such subject"}
            if texts and len(parts) == 3:
                status, reply = 200, list(range(1, len(texts) + 1))
            elif texts:
                text = texts[int(parts[3]) - 1]
                found = {"subject": parts[1], "version": int(parts[3]), "schema": text}
                status, reply = 200, {**found, "id": server.ids[text]}
        elif self.command == "GET" and parts[0] == "config":
            level = server.levels.get(parts[1])
            status = 404 if level is None else 200
            reply = {"compatibilityLevel": level} if level else {"error_code": 40408}
        elif self.command == "GET" and parts[:2] == ["schemas", "ids"]:
            found = [text for text, number in server.ids.items() if str(number) == parts[2]]
            status = 200 if found else 404
            reply = {"schema": found[0]} if found else {"error_code": 40403, "message": "none"}
        elif self.command == "PUT" and parts[0] == "config" and server.level_conflicts:
            server.level_conflicts -= 1
            server.levels[parts[1]] = server.level_of_the_other
            status, reply = 409, {"error_code": 409, "message": "a rule already exists"}
        elif self.command == "PUT" and parts[0] == "config":
            level = json.loads(body)["compatibility"]
            server.levels[parts[1]] = level
            reply = {"compatibility": level}
        elif self.command == "GET" and path == "/subjects":
            reply = []
        self._send(status, json.dumps(reply).encode(), "application/vnd.schemaregistry.v1+json")

    def _send(self, status, data, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status != 200 and self.server.retry_after is not None:
            self.send_header("Retry-After", self.server.retry_after)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the names are http.server's


@pytest.fixture
def server():
    running = Registry()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join(10)
    running.server_close()


def open_registry(url, options=None):
    # No second tries: the client's own would only make the tests of refusals slow.
    return HttpSchemaRegistry(url, options={"max.retries": 0, **(options or {})})


@pytest.fixture
def registry(server):
    return open_registry(server.url)


def test_what_is_registered_is_fetched_once_and_the_level_is_set(registry, server):
    registry.require_reachable()
    assert [registry.register("a-value", one) for one in (STRING, LONG, STRING)] == [1, 2, 1]
    other = open_registry(server.url)
    before = len(server.asked)
    assert [other.schema(1) for _ in range(3)] == [STRING] * 3
    assert len(server.asked) == before + 1
    registry.set_compatibility("a-value", "BACKWARD")
    assert server.levels == {"a-value": "BACKWARD"}
    assert registry.compatibility("a-value") == "BACKWARD"
    assert registry.compatibility("b-value") is None


def test_a_schema_whose_subject_was_deleted_is_registered_again(registry, server):
    def schemas():
        return [version.schema for version in registry.versions("a-value")]

    registry.register("a-value", STRING)
    assert schemas() == [STRING]
    server.versions.clear()
    assert registry.register("a-value", STRING) == 1
    assert schemas() == [STRING]
    server.versions.clear()
    for schema in (LONG, STRING):
        registry.register("a-value", schema)
    assert schemas() == [LONG, STRING]


def test_versions_are_read_again_and_each_is_fetched_once(registry, server):
    assert registry.versions("a-value") == ()
    other = open_registry(server.url)
    other.register("a-value", STRING)
    assert registry.versions("a-value") == (RegisteredSchema(1, STRING),)
    other.register("a-value", LONG)
    before = len(server.asked)
    assert registry.versions("a-value") == (RegisteredSchema(1, STRING), RegisteredSchema(2, LONG))
    assert len(server.asked) == before + 2


def test_a_schema_of_another_program_is_a_version_and_not_an_outage(registry, server):
    """A message of Protobuf, whose text is not JSON, and a schema of Avro that has no fields."""
    texts = ('syntax = "proto3"; message Row {}', '"string"', '["null", "long"]')
    server.ids = {text: number for number, text in enumerate(texts, 1)}
    server.versions["a-value"] = dict.fromkeys(texts)
    found = [{}, {"type": "string"}, {"type": ["null", "long"]}]
    assert [version.schema for version in registry.versions("a-value")] == found
    assert registry.schema(2) == found[1]
    with pytest.raises(SchemaNotFound, match="schema_id=1"):
        registry.schema(1)


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (200, b"<html>welcome</html>"),
        (200, b'{"status": "UP"}'),
        (200, b""),
        (302, b""),
        (404, b"<html>not found</html>"),
        (405, b""),
    ],
)
def test_a_url_without_its_path_is_a_fault_of_the_settings(registry, server, status, data):
    server.page = status, data
    with pytest.raises(ConfigError, match="registry_url: ") as caught:
        registry.require_reachable()
    assert "/apis/ccompat/v7" in caught.value.hint
    assert server.url in str(caught.value)


BASIC = {"basic.auth.user.info": "me:hush"}
BEARER = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": "hush",
    "bearer.auth.logical.cluster": "lsrc-1",
}


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("options", "sent", "text"),
    [
        ({}, None, "registry_user_info"),
        (BASIC, "Basic bWU6aHVzaA==", "the registry rejects these credentials"),
        (BEARER, "Bearer hush", "registry_options: the registry rejects"),
    ],
)
def test_credentials_are_sent_and_never_printed(server, status, options, sent, text):
    registry = open_registry(server.url, options)
    server.refuse = (status, "who are you?")
    with pytest.raises(ConfigError, match=text) as caught:
        registry.require_reachable()
    assert server.asked[-1][2] == sent
    assert "hush" not in str(caught.value)
    if not options and status == 401:
        assert "requires a login" in str(caught.value)
    server.refuse = (500, "down")
    with pytest.raises(UnreachableError) as down:
        registry.schema(77)
    assert "hush" not in str(down.value)


def test_a_registry_that_does_not_answer_is_not_waited_for_without_end(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnreachableError, match="Timeout"):
            open_registry(url, {"timeout": 0.2}).require_reachable()
    assert HttpSchemaRegistry(server.url)._client._rest_client.timeout == 10


def test_an_unknown_id_and_an_incompatible_schema_are_schema_errors(registry, server):
    with pytest.raises(SchemaError, match="schema_id=9"):
        registry.schema(9)
    server.refuse = (409, "incompatible")
    with pytest.raises(SchemaError, match=r"incompatible.*a-value"):
        registry.register("a-value", LONG)
    # Another refusal says what the registry says.
    server.refuse = (422, "no such level")
    with pytest.raises(SchemaError, match="no such level"):
        registry.set_compatibility("a-value", "SIDEWAYS")


def test_a_schema_that_another_worker_registered_meanwhile_is_found(registry, server):
    server.is_raced = True
    assert registry.register("a-value", LONG) == 77


@pytest.mark.parametrize(("conflicts", "is_compatible"), [(1, None), (2, True), (2, False)])
def test_a_schema_that_another_version_overtook_is_registered_again(
    registry, server, conflicts, is_compatible
):
    """The other version may not be visible yet (None)."""
    server.conflicts, server.is_compatible = conflicts, is_compatible
    if is_compatible is False:
        with pytest.raises(SchemaError, match=r"incompatible.*a-value"):
            registry.register("a-value", LONG)
    else:
        assert registry.register("a-value", LONG) == 1
    assert server.conflicts == (1 if is_compatible is False else 0)


@pytest.mark.parametrize(("other", "asked"), [("BACKWARD", 1), (None, 3)])
def test_a_level_that_another_worker_sets_meanwhile_is_no_refusal(registry, server, other, asked):
    server.level_conflicts, server.level_of_the_other = 2, other
    registry.set_compatibility("a-key", "BACKWARD")
    assert server.levels == {"a-key": "BACKWARD"}
    assert [command for command, _, _ in server.asked].count("PUT") == asked


def test_a_level_that_others_change_without_end_is_given_up(registry, server):
    server.level_conflicts = 1_000
    with pytest.raises(UnreachableError, match=r"again and again.*a-key"):
        registry.set_compatibility("a-key", "BACKWARD")


@pytest.mark.parametrize("refusal", [(401, "no"), (403, "no"), (422, "read-only", 42205)])
def test_a_change_that_is_not_allowed_names_its_subject(registry, server, refusal):
    server.refuse = refusal
    with pytest.raises(ConfigError, match=r"register a version of a-value.*by hand"):
        registry.register("a-value", STRING)
    with pytest.raises(ConfigError, match=r"set the compatibility of a-value"):
        registry.set_compatibility("a-value", "BACKWARD")


OAUTH = {
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.issuer.endpoint.url": "http://127.0.0.1:9/token",
    "bearer.auth.client.id": "me",
    "bearer.auth.client.secret": "hush",
    "bearer.auth.scope": "schemas",
    "bearer.auth.logical.cluster": "lsrc-1",
    "bearer.auth.identity.pool.id": "pool-1",
}
CALLS = {
    "register": lambda registry: registry.register("a-value", STRING),
    "versions": lambda registry: registry.versions("a-value"),
    "schema": lambda registry: registry.schema(1),
    "compatibility": lambda registry: registry.compatibility("a-value"),
    "set_compatibility": lambda registry: registry.set_compatibility("a-value", "BACKWARD"),
    "subject_names": lambda registry: registry.subject_names(),
    "delete": lambda registry: registry.delete("a-value"),
    "require_reachable": lambda registry: registry.require_reachable(),
}


def test_an_answer_that_may_pass_is_unreachable_for_every_call(registry, server):
    for status in (408, 425, 429, 500, 501, 502, 503, 504, 507):
        server.refuse = (status, "not now")
        for name, call in CALLS.items():
            with pytest.raises(UnreachableError, match=f"HTTP status {status}") as caught:
                call(registry)
            assert caught.value.retriable, (status, name)


REJECTIONS = [
    ((401, "who are you?"), None),
    (None, (401, b"<html>login</html>")),
    (None, (403, b"<html>blocked</html>")),
    ((403, "not you", 40301), None),
]


def test_a_rejection_after_accepted_calls_passes_for_some_minutes(registry, server, monkeypatch):
    now_s = [1_000.0]
    monkeypatch.setattr(
        "tidegate.program.registry_http.Rejections", partial(Rejections, lambda: now_s[0])
    )
    left_out = {"require_reachable", "delete"}
    running = {name: call for name, call in CALLS.items() if name not in left_out}

    def asked(call):
        registry.schema.cache_clear()
        registry._client.clear_caches()
        call(registry)

    for refuse, page in REJECTIONS:
        server.refuse = server.page = None
        for call in running.values():
            asked(call)
        server.refuse, server.page = refuse, page
        status = (refuse or page)[0]
        for seconds in range(0, 300, 60):
            for name, call in running.items():
                with pytest.raises(UnreachableError, match=f"HTTP status {status}") as caught:
                    asked(call)
                assert caught.value.retriable, (name, refuse, page, seconds)
            now_s[0] += 60
        for name, call in running.items():
            with pytest.raises(ConfigError, match=f"registry_user_info.*{status}") as caught:
                asked(call)
            assert (refuse or ("", "html"))[1] in str(caught.value), name


def test_what_was_never_accepted_is_a_fault_of_the_settings(registry, server):
    """A call of another kind, where a registry lets everybody read; or for another subject."""
    registry.require_reachable()
    server.refuse = (401, "no")
    with pytest.raises(ConfigError, match="register a version of a-value"):
        registry.register("a-value", LONG)
    server.refuse = None
    registry.register("a-value", LONG)
    server.refuse = (403, "not this one", 40301)
    for call in (registry.register, lambda subject, _schema: registry.versions(subject)):
        with pytest.raises(ConfigError):
            call("b-value", LONG)


def test_a_token_that_is_rejected_is_fetched_again(server):
    registry = open_registry(server.url, OAUTH)
    provider = registry._client._rest_client.bearer_field_provider
    tokens = iter("abc")
    provider.fetch_token, provider.token_expired = lambda: next(tokens), lambda: False
    registry.subject_names()
    assert server.asked[-1][2] == "Bearer a"
    server.refuse = (401, "revoked")
    with pytest.raises(UnreachableError):
        registry.subject_names()
    server.refuse = None
    registry.subject_names()
    registry.subject_names()
    assert [asked[2] for asked in server.asked[-2:]] == ["Bearer b"] * 2


def test_a_proxys_page_does_not_say_that_something_is_missing(registry, server):
    for page in (b"<html>no such host</html>", b'{"message": "no Route matched"}', b""):
        server.page = (404, page)
        for name, call in CALLS.items():
            if name != "require_reachable":  # at the start it is a fault of the settings
                with pytest.raises(UnreachableError, match="HTTP status 404"):
                    call(registry)


@pytest.mark.parametrize("asked", ["lookup", "compatibility"])
def test_a_conflict_is_not_final_while_the_registry_does_not_say_why(registry, server, asked):
    server.conflicts, server.busy_path = 2, asked
    with pytest.raises(UnreachableError, match="HTTP status 429"):
        registry.register("a-value", LONG)


def test_a_request_waits_as_long_as_the_registry_asks(server, monkeypatch):
    waits = []
    pace = partial(RetryAfter, sleep=waits.append)
    monkeypatch.setattr("tidegate.program.registry_http.RetryAfter", pace)
    paced = HttpSchemaRegistry(server.url, options={"max.retries": 1, "retries.wait.ms": 0})
    server.refuse, server.retry_after = (429, "slower"), "30"
    with pytest.raises(UnreachableError):
        paced.subject_names()
    server.refuse = None
    assert paced.subject_names() == []
    assert len([wait for wait in waits if 29 < wait <= 30]) == 2, waits


def test_a_token_endpoint_that_does_not_answer_is_named(server):
    endpoint = {**OAUTH, "bearer.auth.issuer.endpoint.url": f"{server.url}/token"}
    registry = open_registry(server.url, endpoint)
    for status in (429, 500, 503):
        server.refuse = (status, "not now")
        with pytest.raises(UnreachableError, match="token endpoint") as caught:
            registry.subject_names()
        assert "hush" not in str(caught.value)


def test_nobody_listens(server):
    url = server.url
    server.server_close()
    with pytest.raises(UnreachableError, match=url):
        open_registry(url).schema(1)


@pytest.mark.parametrize(
    "options",
    [
        {"no.such.option": "hush"},
        {"ssl.ca.location": "/no/such/hush"},
        {"max.retries": "hush"},
        {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "hush"},
    ],
    ids=["unknown", "no file", "no number", "no cluster"],
)
def test_options_that_the_client_refuses_are_named_without_their_values(server, options):
    with pytest.raises(ConfigError, match="registry_options") as caught:
        HttpSchemaRegistry(server.url, options=options)
    assert next(iter(options)) in str(caught.value)
    assert "hush" not in str(caught.value)


LOGIN = SchemaRegistryError(401, 401, "who are you?")
PAGE = SchemaRegistryError(403, -1, "<html>")
OWN = SchemaRegistryError(403, 40301, "not you")


@pytest.mark.parametrize("writes", [False, True])
def test_a_rejection_may_pass_where_such_a_call_was_accepted(writes):
    access = RegistryAccess()
    assert not any(access.may_pass(one, "a", writes=writes) for one in (LOGIN, PAGE, OWN))
    access.accept("a", writes=writes)
    assert all(access.may_pass(one, "a", writes=writes) for one in (LOGIN, PAGE, OWN))
    assert not any(access.may_pass(one, "a", writes=not writes) for one in (LOGIN, PAGE, OWN))
    assert [access.may_pass(one, "b", writes=writes) for one in (LOGIN, PAGE, OWN)] == [
        True, True, False
    ]  # fmt: skip


def test_a_proxys_answer_has_no_code_of_the_registry():
    assert [is_foreign(one) for one in (LOGIN, PAGE, OWN)] == [False, True, False]
    assert is_foreign(SchemaRegistryError(403, None, "no Route matched"))


ACCEPTED = None


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([0, 1], [True, True]),
        ([ACCEPTED, 0, *[30] * 10], [False] * 10 + [True]),
        # An accepted call ends an outage.
        ([ACCEPTED, 0, *[30] * 9, ACCEPTED, 0, 30], [False] * 12),
        # Rejections that are hours apart are not one outage.
        ([ACCEPTED, 0, 3_600, 3_600, 3_600], [False] * 4),
    ],
)
def test_what_was_accepted_before_is_given_up_after_five_minutes_of_attempts(steps, expected):
    """Each number is the pause before a rejection."""
    now_s, found = [1_000.0], []
    rejections = Rejections(lambda: now_s[0])
    for pause_s in steps:
        if pause_s is ACCEPTED:
            rejections.accept()
        else:
            now_s[0] += pause_s
            found.append(rejections.reject())
    assert found == expected


NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
REQUEST = httpx2.Request("GET", "http://127.0.0.1/")


def waited(status, header, *, passed_s=0.0):
    """Return the waits of two requests after a response and `passed_s` more seconds."""
    clock_s, waits = [5.0], []

    def sleep(seconds):
        waits.append(seconds)
        clock_s[0] += seconds

    pace = RetryAfter(clock_s=lambda: clock_s[0], now=lambda: NOW, sleep=sleep)
    pace.before_request(REQUEST)
    headers = {} if header is None else {"Retry-After": header}
    pace.after_response(httpx2.Response(status, headers=headers))
    clock_s[0] += passed_s
    pace.before_request(REQUEST)
    pace.before_request(REQUEST)
    return waits


@pytest.mark.parametrize(
    ("status", "header", "waits"),
    [
        (429, "7", [7.0]),
        (503, "7", [7.0]),
        (408, " 7 ", [7.0]),
        (425, "Sun, 01 Mar 2026 12:00:09 GMT", [9.0]),
        (429, "Sun, 01 Mar 2026 12:00:09 -0000", [9.0]),
        (429, "Sun, 01 Mar 2026 11:59:00 GMT", []),
        (429, "0", []),
        (429, None, []),
        (429, "soon", []),
        (429, "", []),
        (429, "-3", []),
        (429, "9" * 400, [60.0]),
        (503, "Wed, 01 Mar 2999 12:00:00 GMT", [60.0]),
        (200, "7", []),
        (404, "7", []),
    ],
)
def test_the_next_request_waits_as_long_as_the_server_asks(status, header, waits):
    assert waited(status, header) == waits


def test_time_that_has_passed_is_not_waited_for():
    assert waited(429, "7", passed_s=4.0) == [3.0]
    assert waited(429, "7", passed_s=8.0) == []


def test_what_may_pass():
    temporary = [status for status in range(200, 600) if is_temporary(status)]
    assert temporary == [408, 425, 429, *range(500, 600)]
