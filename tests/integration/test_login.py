"""A broker with TLS, a login and ACLs, and a registry with a login.

From end to end; what is missing is named; the listed rights are enough.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests import signed_tokens
from tests.integration.shared_stack import (
    PATIENCE_S,
    now,
    read_bytes,
    release,
    rows_of,
    run_producer,
    running,
    until,
)
from tests.signed_tokens import TokenListener
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNT_COLUMNS, ACCOUNTS, STREAM
from tidegate.local_stack.demo.bank_database import commit_time_us, create_bank_database
from tidegate.local_stack.parts import kafka_broker
from tidegate.local_stack.parts import stack as parts_stack
from tidegate.local_stack.parts.kafka_broker import SecureListener
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

USER, PREFIX = "tidegate", "bank"
USER_INFO, TOKEN = "fleet:tide-4711", "token-4711"
BASIC = f"Basic {base64.b64encode(USER_INFO.encode()).decode()}"
BEARER = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": TOKEN,
    "bearer.auth.logical.cluster": "lsrc-1",
}
AUTHORIZER = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
TOPIC = (ResourceType.TOPIC, PREFIX, PREFIXED)
PROGRESS = (ResourceType.TOPIC, f"{PREFIX}-progress", LITERAL)
GROUP = (ResourceType.GROUP, f"{PREFIX}-fleet", PREFIXED)
TRANSACTIONS = (ResourceType.TRANSACTIONAL_ID, f"{PREFIX}-fleet-w1", LITERAL)
RIGHTS = {
    (TOPIC, AclOperation.DESCRIBE): "topic",
    (TOPIC, AclOperation.WRITE): "topic",
    (TOPIC, AclOperation.DESCRIBE_CONFIGS): "topic",
    (TOPIC, AclOperation.CREATE): "topic",
    (PROGRESS, AclOperation.READ): "topic",
    (GROUP, AclOperation.READ): "group",
    (GROUP, AclOperation.DESCRIBE): "group",
    (TRANSACTIONS, AclOperation.WRITE): "transactional id",
    (TRANSACTIONS, AclOperation.DESCRIBE): "transactional id",
}
"""What docs/reference/permissions.md lists for a worker, and what a text has to name."""
IMPLIED = (AclOperation.DESCRIBE, AclOperation.CREATE)
"""Describe comes with Read and Write; without Create the topics have to exist."""
EVERYTHING = [
    ((kind, "*", LITERAL), AclOperation.ALL)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]


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
            response = connection.getresponse()
            status, kind, answer = (
                response.status,
                response.getheader("Content-Type"),
                response.read(),
            )
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
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}{parts.path}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A stack whose second listener has TLS and a login, and gives rights by ACLs only."""
    config = load_config(data_dir=tmp_path_factory.mktemp("secure"), seed=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_broker, "SETTINGS", kafka_broker.SETTINGS + AUTHORIZER)
        patch.setattr(parts_stack, "SecureListener", TokenListener)
        folder = config.data_dir / "secure"
        patch.setenv("JAVA_TOOL_OPTIONS", signed_tokens.java_tool_options(folder))
        with LocalStack(config, has_login=True) as started:
            yield started


@pytest.fixture(scope="module")
def bank(stack):
    """The bank's database, by the official client."""
    return create_bank_database(DatabaseName(address=stack.spanner_address))


@pytest.fixture(scope="module")
def secured_registry(stack):
    with gateway_to(stack.registry_url) as url:
        yield url


@pytest.fixture(scope="module")
def acls(stack):
    """Give and take rights, by the listener without a login."""
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})

    def change(rights, *, give, permission=AclPermissionType.ALLOW):
        kind = AclBinding if give else AclBindingFilter
        bindings = [
            kind(*place, f"User:{USER}", "*", operation, permission) for place, operation in rights
        ]
        done = client.create_acls(bindings) if give else client.delete_acls(bindings)
        for answer in done.values():
            answer.result(30)
        time.sleep(0.5)  # the authorizer follows the controller's log

    @contextmanager
    def given(rights, **permission):
        change(rights, give=True, **permission)
        try:
            yield
        finally:
            change(rights, give=False, **permission)

    return given


@pytest.fixture
def programs(stack, bank, secured_registry, tmp_path):
    """Make programs that log in."""

    def make(prefix=PREFIX, *, is_secured=False, **settings):
        found = {"PRODUCER_SLOTS": 2, "PRODUCER_TOPIC_PARTITIONS": 1, **settings}
        return Programs(
            folder=tmp_path,
            bootstrap_servers=stack.bootstrap_servers,
            secure=stack.kafka.secure,
            registry_url=secured_registry if is_secured else stack.registry_url,
            spanner_address=stack.spanner_address,
            database=DatabaseName(address=stack.spanner_address),
            stream=STREAM,
            prefix=prefix,
            more={f"TIDEGATE_{name}": str(value) for name, value in found.items()},
        )

    return make


@pytest.fixture
def topics_exist(stack, programs, acls):
    """The topics, made by a worker that has every right; the rights are taken back."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    if f"{PREFIX}-progress" not in admin.list_topics(timeout=30).topics:
        with acls(RIGHTS):
            _run_until_slots(programs())


def _run_until_slots(made):
    with running(made) as pipeline:
        log = pipeline.workers[0].spec.log
        pipeline.wait(
            lambda: "slots assigned" in log.read_text(), what="slots", deadline_s=PATIENCE_S
        )


def ended(made, command="run", **environ):
    """Run the producer until it ends with exit code 2; return what it says."""
    done = run_producer(made, command, WORKER="w1", PRODUCER_WORKER="w1", **environ)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stdout + done.stderr


def options(made, **kafka):
    """Return the setting with other options of the Kafka client, an underscore for each dot."""
    found = made.secure.client_options()
    found |= {name.replace("_", "."): value for name, value in kafka.items()}
    return {"PRODUCER_KAFKA_OPTIONS": json.dumps(found)}


def test_changes_go_from_end_to_end(bank, programs, acls, spark, tmp_path):
    login = {f"{program}_REGISTRY_USER_INFO": USER_INFO for program in ("PRODUCER", "CONSUMER")}
    made = programs("secure", is_secured=True, **login)
    rows = [(f"end-{key}", "owner", key, 0) for key in range(20)]
    with acls(EVERYTHING), running(made, 2) as pipeline:
        with bank.batch() as batch:
            batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, rows)
        release(spark, pipeline, commit_time_us(batch.committed))
    mirror = {row["AccountId"]: row["Balance"] for row in rows_of(made, f"mirror/{ACCOUNTS}")}
    assert mirror.items() >= {key: balance for key, _, balance, _ in rows}.items()

    password = made.secure.client_options()["sasl.password"]
    secrets = [secret.encode() for secret in (password, USER_INFO, "tide-4711")]
    # Logs, tables, manifests, and both parts of the checkpoint.
    for file in tmp_path.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [secret for secret in secrets if secret in content], file


def test_the_registrys_logins_are_used_or_named(programs, acls):
    with acls(EVERYTHING):
        made = programs(is_secured=True)
        good = run_producer(made, "check", PRODUCER_REGISTRY_OPTIONS=json.dumps(BEARER))
        assert good.returncode == 0, good.stderr
        assert TOKEN not in good.stdout + good.stderr
        wrong = json.dumps({**BEARER, "bearer.auth.token": "other"})
        text = ended(made, "check", PRODUCER_REGISTRY_OPTIONS=wrong)
        assert "registry_options: the registry rejects these credentials" in text
        assert "the registry requires a login" in ended(made, "check")


def test_a_broker_of_another_authority_is_refused(programs, tmp_path):
    other = SecureListener(1, tmp_path / "other")
    other.settings()
    authority = other.client_options()["ssl.ca.location"]
    made = programs()
    assert "ssl options" in ended(made, "check", **options(made, ssl_ca_location=authority))


TOKEN_SECONDS = 4


@pytest.fixture
def with_tokens(stack, programs, monkeypatch):
    """Make programs whose tokens are those of a function, each valid for four seconds."""
    folder = stack.kafka.secure.folder
    monkeypatch.setenv(signed_tokens.FOLDER, str(folder))
    monkeypatch.setenv(signed_tokens.SECONDS, str(TOKEN_SECONDS))
    monkeypatch.setattr(TokenListener, "client_options", TokenListener.tls_options)
    (folder / "fetched").unlink(missing_ok=True)
    return programs("tokens", PRODUCER_KAFKA_LOGIN=signed_tokens.FUNCTION)


@pytest.mark.deep
def test_a_fleet_goes_on_through_changes_of_its_token(stack, bank, with_tokens, acls):
    folder, topic = stack.kafka.secure.folder, f"tokens.{ACCOUNTS}"

    def has_come(key):
        return any(key in message.key() for message in read_bytes(stack, topic))

    with acls(EVERYTHING), running(with_tokens) as pipeline:
        log = pipeline.workers[0].spec.log
        for number in range(3):
            with bank.batch() as batch:
                batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, [(f"token-{number}", "owner", 1, 0)])
            key = f"token-{number}".encode()
            pipeline.wait(lambda key=key: has_come(key), what="a change", deadline_s=PATIENCE_S)
            time.sleep(TOKEN_SECONDS)
        tokens = (folder / "fetched").read_text().splitlines()
    assert len(tokens) > 3
    assert "SASL authentication error" not in log.read_text()
    assert "transaction not committed" not in log.read_text()


def test_a_source_of_tokens_that_is_down_is_named_at_once(stack, with_tokens, acls):
    down = stack.kafka.secure.folder / "down"
    down.touch()
    try:
        began = time.monotonic()
        done = run_producer(with_tokens, "check")
        seconds = time.monotonic() - began
    finally:
        down.unlink()
    assert done.returncode == 75, done.stderr
    assert f"kafka_login: no token: {signed_tokens.FUNCTION} raised OSError" in done.stderr
    assert seconds < 30
    with acls(EVERYTHING):
        assert run_producer(with_tokens, "check").returncode == 0


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_wrong_password_says_so(programs, command):
    made = programs()
    text = ended(made, command, **options(made, sasl_password="wrong-word"))
    assert "Kafka rejected the login" in text
    assert "sasl.password" in text
    assert "wrong-word" not in text


@pytest.mark.parametrize("command", ["check", "run"])
def test_without_any_acl_the_first_missing_right_is_named(programs, command):
    made = programs()
    text = ended(made, command)
    assert "Kafka denies access to" in text
    assert "docs/reference/permissions.md" in text
    assert made.secure.client_options()["sasl.password"] not in text


@pytest.mark.parametrize(
    ("missing", "named"),
    [pair for pair in RIGHTS.items() if pair[0][1] not in IMPLIED],
    ids=[f"{r[1].name.lower()} {n}" for r, n in RIGHTS.items() if r[1] not in IMPLIED],
)
@pytest.mark.usefixtures("topics_exist")
def test_each_missing_right_is_named(programs, acls, missing, named):
    with acls([right for right in RIGHTS if right != missing]):
        assert named in ended(programs())


@pytest.mark.usefixtures("topics_exist")
def test_the_listed_rights_are_enough(stack, programs, acls, bank):
    topic = f"{PREFIX}.{ACCOUNTS}"
    balances = iter(range(1, 1_000))

    def has_come():
        # More than once: the stream begins when the worker has read its slots, not before.
        with bank.batch() as batch:
            row = ("a-1", "owner", next(balances), 0)
            batch.insert_or_update(ACCOUNTS, columns=ACCOUNT_COLUMNS, values=[row])
        return any(b"a-1" in message.key() for message in read_bytes(stack, topic))

    with acls(RIGHTS), running(programs()) as pipeline:
        pipeline.wait(has_come, what="a change", deadline_s=PATIENCE_S)


@pytest.mark.usefixtures("topics_exist")
def test_check_names_each_missing_right(stack, programs, acls):
    """What `run` would refuse is refused; what a redrive or a later change needs is named."""
    topic = f"{PREFIX}-dead-letter"
    made = programs(PRODUCER_POISON="park", PRODUCER_WORKER="w1")
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    create, write = (TOPIC, AclOperation.CREATE), (TOPIC, AclOperation.WRITE)
    read = ((ResourceType.TOPIC, topic, LITERAL), AclOperation.READ)
    own = (f"{PREFIX}.", f"{PREFIX}-")
    others = sorted(one for one in client.list_topics(timeout=30).topics if one.startswith(own))

    def said(*missing, more=()):
        """Return what a check with all rights but these says, after its exit code."""
        with acls([*(right for right in (*RIGHTS, read) if right not in missing), *more]):
            done = run_producer(made, "check", PRODUCER_WORKER="w1")
        return f"{done.returncode} {done.stdout}{done.stderr}"

    assert f"would create dead-letter topic {topic}" in said()
    fresh = programs("fresh", PRODUCER_WORKER="w1")
    with acls([((ResourceType.TOPIC, "fresh", PREFIXED), AclOperation.ALL), *RIGHTS]):
        transactions = ended(fresh, "check")
    assert "transactions refused for fresh-fleet-w1" in transactions
    refused = said(create)
    assert refused.startswith("2 ")
    assert f"cannot create topic {topic}" in refused
    assert topic not in client.list_topics(timeout=30).topics
    refused = said(write)
    assert refused.startswith("2 ")
    assert f"may not write to {', '.join(others)}" in refused
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    try:
        assert f"dead-letter topic {topic}\n" in said(create)
        to_others = [((ResourceType.TOPIC, one, LITERAL), AclOperation.WRITE) for one in others]
        assert "may not write: add the ACL Write" in said(write, more=to_others)
        assert "may not read, as a redrive has to: add the ACL Read" in said(read)
    finally:
        client.delete_topics([topic])[topic].result(30)


def test_a_permission_that_is_lost_is_named_and_nothing_is_lost(stack, programs, acls, bank):
    made, start = programs("denied"), now()
    topic = f"denied.{ACCOUNTS}"

    def insert(owner):
        with bank.batch() as batch:
            batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, [(f"denied-{owner}", owner, 1, 0)])

    def published():
        return sum(b"denied-" in message.key() for message in read_bytes(stack, topic))

    with acls(EVERYTHING):
        worker = made.worker("w1", start=start)
        worker.start()
        try:
            insert("first")
            client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
            until(lambda: topic in client.list_topics(timeout=30).topics)
            until(lambda: published() == 1, worker.spec.log.read_text)
            denied = [((ResourceType.TOPIC, topic, LITERAL), AclOperation.WRITE)]
            with acls(denied, permission=AclPermissionType.DENY):
                insert("denied")
                began = time.monotonic()
                code = worker.process.wait(deadline_s=PATIENCE_S)
                seconds = time.monotonic() - began
            log = worker.spec.log.read_text()
            assert code == 2
            assert seconds < 10
            assert "Kafka denies writing to a topic" in log
            assert f"topic='{topic}'" in log
            assert "commit_timestamp_us=" in log
            attempts = [line for line in log.splitlines() if "transaction not committed" in line]
            refused = [
                attempt
                for attempt in attempts
                if '"failure": "TOPIC_AUTHORIZATION_FAILED"' in attempt
            ]
            assert len(refused) <= 3, attempts
            worker.start()
            until(lambda: published() == 2, worker.spec.log.read_text)
        finally:
            worker.kill()
