"""Fleet and consumer go on through changes of their tokens: Google's, AWS's, and OIDC's.

As programs, with Java's login handlers in Spark.  Tokens and sessions last 20 seconds;
`TIDEGATE_LOGIN_SECONDS` is for how long changes are made.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from tests import cloud_broker, signed_tokens
from tests.cloud_broker import CloudListener
from tests.fake_clouds import ACCESS_TOKEN, KEY_ID, SECRET_KEY, cloud
from tests.integration.shared_stack import PATIENCE_S, rows_of, run_producer, running
from tests.other_jars import fetched
from tests.signed_tokens import CLIENT, CLIENT_SECRET, TokenListener, token_endpoint
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNT_COLUMNS, ACCOUNTS, STREAM
from tidegate.local_stack.demo.bank_database import commit_time_us, create_bank_database
from tidegate.local_stack.parts import stack as parts_stack
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.spark_consumer.config import LEFT_OUT_PACKAGES, LOGIN_PACKAGES

SECONDS = float(os.environ.get("TIDEGATE_LOGIN_SECONDS", "30"))
TOKEN_SECONDS = 20
pytestmark = [
    pytest.mark.integration,
    pytest.mark.deep,
    pytest.mark.timeout(SECONDS + 900),
]
PREFIX = "cloud"


def login_jars(login):
    """Return the jars of a login handler."""
    left_out = (LEFT_OUT_PACKAGES, "org.apache.kafka:kafka-clients", "org.slf4j:slf4j-api")
    return tuple(sorted(fetched(LOGIN_PACKAGES[login], left_out=left_out).glob("*.jar")))


class _Gateway(BaseHTTPRequestHandler):
    """Passes requests with a token of now on to the registry."""

    def log_message(self, *_):
        """Print nothing."""

    def _pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = self.server
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if server.is_valid(token):
            server.tokens.add(token)
            connection = http.client.HTTPConnection(*server.behind, timeout=60)
            kind = self.headers.get("Content-Type") or "application/json"
            connection.request(self.command, self.path, body, {"Content-Type": kind})
            response = connection.getresponse()
            status, answer = response.status, response.read()
            connection.close()
        else:
            status, answer = 401, b'{"error_code":401,"message":"no"}'
            server.rejected += 1
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815 - the names are http.server's


@contextmanager
def gateway(url, is_valid):
    """Yield a registry that takes the tokens of now."""
    parts = urlsplit(url)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Gateway)
    server.daemon_threads = True
    server.behind, server.is_valid = (parts.hostname, parts.port), is_valid
    server.tokens, server.rejected = set(), 0
    server.url = f"http://127.0.0.1:{server.server_port}{parts.path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(params=["google", "aws", "oidc"])
def world(request, tmp_path):
    """A stack that asks for one kind of token, and programs that have it."""
    login = request.param
    with ExitStack() as exits:
        patch = exits.enter_context(pytest.MonkeyPatch.context())
        # Few jars fit all: Spark's own come first.
        jars = () if login == "oidc" else login_jars(login)
        plain = JvmParts.spark_jars.fget
        patch.setattr(JvmParts, "spark_jars", property(lambda self: (*plain(self), *jars)))
        opened = (
            _oidc(exits, patch, tmp_path)
            if login == "oidc"
            else _cloud(exits, patch, tmp_path, login)
        )
        opened.login = login
        yield opened


def _cloud(exits, patch, folder, login):
    if login == "aws":
        pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra aws is not installed")
    server = exits.enter_context(cloud(seconds=TOKEN_SECONDS if login == "google" else 3_600))
    patch.setattr(CloudListener, "session_s", TOKEN_SECONDS)
    patch.setattr(parts_stack, "SecureListener", CloudListener)
    config = load_config(data_dir=folder / "stack", kafka_port=cloud_broker.fixed_kafka_port())
    stack = exits.enter_context(LocalStack(config, has_login=True))
    gate = cloud_broker.gates[stack.kafka.secure.port]
    exits.callback(gate.close)
    environ = server.google if login == "google" else server.aws
    settings = {"KAFKA_LOGIN": login}
    registry = None
    if login == "google":
        registry = exits.enter_context(gateway(stack.registry_url, server.is_valid))
        settings["REGISTRY_LOGIN"] = login
    more = {
        f"TIDEGATE_{one}_{name}": value
        for name, value in settings.items()
        for one in ("PRODUCER", "CONSUMER")
    }
    return SimpleNamespace(
        stack=stack, more={**environ, **more}, gate=gate, cloud=server, registry=registry,
        secrets=[ACCESS_TOKEN] if login == "google" else [SECRET_KEY, f"{KEY_ID}%2F"],
        issued=lambda: server.issued,
    )  # fmt: skip


def _oidc(exits, patch, folder):
    patch.setattr(parts_stack, "SecureListener", TokenListener)
    secure = folder / "stack" / "secure"
    patch.setenv("JAVA_TOOL_OPTIONS", signed_tokens.java_tool_options(secure))
    stack = exits.enter_context(LocalStack(load_config(data_dir=folder / "stack"), has_login=True))
    endpoint = exits.enter_context(token_endpoint(secure, TOKEN_SECONDS))
    options = {
        **stack.kafka.secure.tls_options(),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    patch.setattr(TokenListener, "client_options", lambda _: options)
    return SimpleNamespace(
        stack=stack, more={}, gate=None, cloud=None, registry=None, secrets=[CLIENT_SECRET],
        issued=lambda: endpoint.issued,
    )  # fmt: skip


def test_nothing_is_lost_while_tokens_change(world, tmp_path):
    stack, rows = world.stack, 0
    database = DatabaseName(address=stack.spanner_address)
    bank = create_bank_database(database)
    made = Programs(
        folder=tmp_path, bootstrap_servers=stack.bootstrap_servers, secure=stack.kafka.secure,
        registry_url=world.registry.url if world.registry else stack.registry_url,
        spanner_address=stack.spanner_address, database=database, stream=STREAM, prefix=PREFIX,
        more={"TIDEGATE_PRODUCER_SLOTS": "4", **world.more},
    )  # fmt: skip
    checked = run_producer(made, "check")
    assert checked.returncode == 0, checked.stderr
    with running(made, 2) as pipeline:
        pipeline.start_consumer()
        end = time.monotonic() + SECONDS
        while rows == 0 or time.monotonic() < end or pipeline.released().through_us == 0:
            with bank.batch() as batch:
                batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, [(f"cloud-{rows}", "owner", rows, 0)])
            rows += 1
            pipeline.check()
            time.sleep(0.1)
        through_us = commit_time_us(batch.committed)
        pipeline.wait_released(through_us, deadline_s=PATIENCE_S)
        texts = [worker.spec.log.read_text() for worker in (*pipeline.workers, pipeline.consumer)]
    mirror = {row["AccountId"]: row["Balance"] for row in rows_of(made, f"mirror/{ACCOUNTS}")}
    assert mirror.items() >= {f"cloud-{row}": row for row in range(rows)}.items()
    changelog = [row["order_key"] for row in rows_of(made, f"changelog/{ACCOUNTS}")]
    assert len(changelog) == len(set(changelog)) == rows
    text = "\n".join(texts)
    figures = {
        "login": world.login, "seconds": SECONDS, "rows": rows, "tokens issued": world.issued(),
        "transactions not committed": text.count("transaction not committed"),
        "tokens not renewed": text.count("token not renewed") + text.count("no token for Kafka"),
        "gate": dict(world.gate.logins) if world.gate else {},
        "registry tokens": len(world.registry.tokens) if world.registry else 0,
        "registry rejected": world.registry.rejected if world.registry else 0,
    }  # fmt: skip
    sys.stdout.write(f"\nfigures: {json.dumps(figures)}\n")
    assert world.issued() > 4
    if world.gate:
        assert set(world.gate.logins) == {"accepted"}, world.gate.logins
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    own = [file for file in written if "stack" not in file.parts]
    for secret in world.secrets:
        assert [file for file in own if secret.encode() in file.read_bytes()] == []
    assert not re.search(r"Exception in thread|\tat org\.apache", text)
