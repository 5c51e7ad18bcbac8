"""A broker with TLS and a login, and a registry with one: fleet and gate from end to end."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import deltalake
import pytest

from tests.integration.commands import run_producer
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank_database import commit_time_us, create_database
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.secure_listener import SecureListener
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Seen (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Seen",
]
ROWS = [(key, key * key) for key in range(20)]
PREFIX, PATIENCE_S = "secure", 240
USER_INFO, TOKEN = "fleet:tide-4711", "token-4711"
BASIC = f"Basic {base64.b64encode(USER_INFO.encode()).decode()}"
BEARER = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": TOKEN,
    "bearer.auth.logical.cluster": "lsrc-1",
}


class Gateway(BaseHTTPRequestHandler):
    """Passes requests on to the registry, if they have one of the logins."""

    def _pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") not in (BASIC, f"Bearer {TOKEN}"):
            status, kind, answer = 401, "application/json", b'{"error_code":401,"message":"no"}'
        else:
            connection = http.client.HTTPConnection(*self.server.behind, timeout=60)
            kind = self.headers.get("Content-Type") or "application/json"
            connection.request(self.command, self.path, body, {"Content-Type": kind})
            found = connection.getresponse()
            status, kind, answer = found.status, found.getheader("Content-Type"), found.read()
            connection.close()
        self.send_response(status)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815 - the names are http.server's

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def gateway_to(url):
    """Yield the URL of a registry that wants a login."""
    parts = urlsplit(url)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    server.behind = parts.hostname, parts.port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}{parts.path}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    config = load_config(data_dir=tmp_path_factory.mktemp("secure"), seed=5)
    with LocalStack(config, has_login=True) as running:
        yield running


@pytest.fixture(scope="module")
def database(stack):
    return create_database(DatabaseName(address=stack.spanner_address), DDL)


@pytest.fixture(scope="module")
def registry_url(stack):
    with gateway_to(stack.registry_url) as url:
        yield url


def programs(stack, registry_url, folder, *, registry=None):
    """Programs that log in."""
    settings = {"REGISTRY_USER_INFO": USER_INFO} if registry is None else registry
    return Programs(
        folder=folder,
        bootstrap_servers=stack.bootstrap_servers,
        secure=stack.kafka.secure,
        registry_url=registry_url,
        spanner_address=stack.spanner_address,
        database=DatabaseName(address=stack.spanner_address),
        stream="Feed",
        prefix=PREFIX,
        more={
            f"TIDEGATE_{program}_{name}": value
            for program in ("PRODUCER", "CONSUMER")
            for name, value in settings.items()
        },
    )


def test_changes_go_from_end_to_end(stack, database, registry_url, tmp_path):
    pipeline = Pipeline(programs(stack, registry_url, tmp_path))
    try:
        pipeline.start_workers(2, start=datetime.now(UTC).isoformat().replace("+00:00", "Z"))
        with database.batch() as batch:
            batch.insert("Seen", ("Id", "V"), ROWS)
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(batch.committed), deadline_s=PATIENCE_S)
    finally:
        faults = pipeline.stop()
    assert faults == []
    mirror = deltalake.DeltaTable(tmp_path / "output" / "mirror" / "Seen").to_pyarrow_table()
    assert sorted((row["Id"], row["V"]) for row in mirror.to_pylist()) == ROWS

    password = stack.kafka.secure.client_options()["sasl.password"]
    secrets = [secret.encode() for secret in (password, USER_INFO, "tide-4711")]
    # Logs, tables, manifests, and both parts of the checkpoint.
    for file in tmp_path.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [secret for secret in secrets if secret in content], file


def checked(made, **kafka):
    """Run `check` with the settings of a worker; return its code and what it says.

    `kafka` has other options of the client, with an underscore for each dot.
    """
    options = made.secure.client_options()
    options |= {name.replace("_", "."): value for name, value in kafka.items()}
    result = run_producer(made, "check", TIDEGATE_PRODUCER_KAFKA_OPTIONS=json.dumps(options))
    return result.returncode, result.stdout + result.stderr


def test_a_bearer_token_opens_the_registry(stack, database, registry_url, tmp_path):
    login = {"REGISTRY_OPTIONS": json.dumps(BEARER)}
    code, text = checked(programs(stack, registry_url, tmp_path, registry=login))
    assert (code, TOKEN in text) == (0, False), text
    wrong = {"REGISTRY_OPTIONS": json.dumps({**BEARER, "bearer.auth.token": "other"})}
    code, text = checked(programs(stack, registry_url, tmp_path, registry=wrong))
    assert code == 2
    assert "registry_options: the registry rejects these credentials" in text


def test_a_registry_that_wants_a_login_says_so(stack, database, registry_url, tmp_path):
    code, text = checked(programs(stack, registry_url, tmp_path, registry={}))
    assert code == 2
    assert "the registry requires a login" in text


def test_a_broker_of_another_authority_is_refused(stack, database, registry_url, tmp_path):
    other = SecureListener(1, tmp_path / "other")
    other.settings()
    authority = other.client_options()["ssl.ca.location"]
    code, text = checked(programs(stack, registry_url, tmp_path), ssl_ca_location=authority)
    assert code == 2
    assert "ssl options" in text


def test_a_wrong_password_is_refused(stack, database, registry_url, tmp_path):
    code, text = checked(programs(stack, registry_url, tmp_path), sasl_password="wrong")
    assert code == 2
    assert "sasl.password" in text
