"""One Kafka broker that is also its controller (KRaft), with settings for a single node.

Its data folder has `log/` (formatted once, kept over restarts), `server.properties` (written at
each start, because the ports may differ) and `kafka.log`.  It is ready when it answers a metadata
request.

A second listener has TLS and a login: SASL_SSL with SCRAM-SHA-512.  Its certificate is for
127.0.0.1, of an own authority; both are made when the folder is new and kept.  There is one user,
with a password that is made for this folder.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import secrets
import subprocess
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.class_archives import ClassOptions, class_archives
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.process import HOST, ProcessSpec, Service, accepts
from tidegate.program.java import Java

_USER = "tidegate"
_ITERATIONS = 4_096
_DAYS = 3_650
_ANSWER_S = 30.0

_SECURE_SETTINGS = """
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={keystore}
"""


@dataclass(frozen=True, slots=True)
class SecureListener:
    """The listener on a port, with its files in a folder."""

    port: int
    folder: Path

    @property
    def bootstrap_servers(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    def settings(self) -> str:
        """Return the broker's settings for it; makes the files that are missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._keystore.exists():
            self._make_certificates()
        return _SECURE_SETTINGS.format(keystore=self._keystore)

    def client_options(self) -> dict[str, str]:
        """Return the options of a Kafka client for this broker, by librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": _USER,
            "sasl.password": self._password(),
            "ssl.ca.location": str(self._authority),
        }

    def create_user(self, bootstrap_servers: str) -> None:
        """Create the user, or set the password again, by a listener without a login.

        Raises KafkaException.
        """
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        change = UserScramCredentialUpsertion(
            _USER,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS),
            self._password().encode(),
        )
        for answer in admin.alter_user_scram_credentials([change]).values():
            answer.result(_ANSWER_S)

    @property
    def _authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def _keystore(self) -> Path:
        return self.folder / "broker.pem"

    def _password(self) -> str:
        path = self.folder / "password"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(24))
        return path.read_text()

    def _make_certificates(self) -> None:
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = _certificate("Tidegate local stack", authority_key.public_key())
        authority = authority.issuer_name(_name("Tidegate local stack"))
        authority = authority.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        signed_authority = authority.sign(authority_key, hashes.SHA256())
        certificate = _certificate(HOST, key.public_key()).issuer_name(signed_authority.subject)
        address = x509.IPAddress(ipaddress.ip_address(HOST))
        certificate = certificate.add_extension(
            x509.SubjectAlternativeName([address]), critical=False
        )
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        pem = serialization.Encoding.PEM
        self._authority.write_bytes(signed_authority.public_bytes(pem))
        self._keystore.touch(mode=0o600)
        self._keystore.write_bytes(
            private + certificate.sign(authority_key, hashes.SHA256()).public_bytes(pem)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    # From yesterday, since clocks differ.
    begin = datetime.now(UTC) - timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=_DAYS))
    )


BROKER = "kafka.Kafka"
FORMATTER = "kafka.tools.StorageTool"

# 8 s on two idle cores; other programs start at the same time, on slower machines too.
READY_DEADLINE_S = 120.0
FORMAT_DEADLINE_S = 90.0
ADMIN_DEADLINE_S = 2.0

LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{2} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server
logger.server.level = info
"""

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{more_listeners}
advertised.listeners=PLAINTEXT://{host}:{port}{more_listeners}
log.dirs={log_dir}

# Using a topic that does not exist is an error.
auto.create.topics.enable=false

# One node: nothing has a second copy.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1

# Few of everything: each topic partition costs files and start-up time.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=2
num.network.threads=2
num.io.threads=4
num.replica.fetchers=1
background.threads=2
num.recovery.threads.per.data.dir=2
log.cleaner.threads=1
# Kafka accepts 1 MiB a thread or more; its default is a quarter of this heap.
log.cleaner.dedupe.buffer.size=16777216

# A fleet on one machine starts, dies and restarts within seconds.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms={session_ms}
broker.heartbeat.interval.ms=500
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
"""


@dataclass(slots=True, kw_only=True)
class KafkaBroker(Service):
    """A broker below `data_dir`; a second `start` continues with the same data."""

    java: Java
    parts: JvmParts
    controller_port: int
    secure: SecureListener | None = None
    """A second listener, for clients that log in."""
    session_ms: int = 3_000
    """For how long the machine may leave the broker without a processor; after that, clients find
    no leader.  A broker that was killed is not back before this time."""
    is_lasting: bool = False
    """Whether it runs for long, or under a high load.

    A broker that runs for minutes takes half the CPU time without Java's second compiler.
    """
    classes: ClassOptions = field(default_factory=class_archives)

    @property
    def bootstrap_servers(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self.data_dir / "kafka.log"

    def start(self) -> None:
        """Format a new data folder, start, and return when the broker answers.

        Raises PartFailedError when the broker ends or is not ready within its deadline.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        log_dir = self.data_dir / "log"
        (self.data_dir / "log4j2.properties").write_text(LOGGING)
        secure = self.secure
        settings = SETTINGS.format(
            host=HOST,
            port=self.port,
            controller_port=self.controller_port,
            log_dir=log_dir,
            session_ms=self.session_ms,
            more_listeners=f",SECURE://{secure.bootstrap_servers}" if secure else "",
        )
        self._properties.write_text(settings + (secure.settings() if secure else ""))
        if not (log_dir / "meta.properties").exists():
            self._format()
        self.run(
            ProcessSpec(
                name="the Kafka broker",
                command=[*self._java(BROKER, heap="512m"), str(self._properties)],
                log=self.log,
                grace_ms=self.grace_ms,
            ),
            is_ready=self._answers,
            deadline_s=READY_DEADLINE_S,
        )
        if secure:
            secure.create_user(self.bootstrap_servers)

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    def _java(self, main_class: str, *, heap: str) -> list[str]:
        return [
            str(self.java.program),
            *self.classes.options(main_class),
            f"-Xmx{heap}",
            *(() if self.is_lasting else ("-XX:TieredStopAtLevel=1",)),
            "-XX:+UseSerialGC",  # less memory and fewer threads than G1, at a heap this small
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            "-cp",
            self.parts.broker_class_path,
            main_class,
        ]

    def _format(self) -> None:
        command = self._java(FORMATTER, heap="256m")
        command += ["format", "-t", _new_cluster_id(), "-c", str(self._properties)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=FORMAT_DEADLINE_S,
                check=False,
                stdin=subprocess.DEVNULL,
                env=os.environ,
            )
        except subprocess.TimeoutExpired:
            raise PartFailedError(
                f"formatting the broker's data folder took more than {FORMAT_DEADLINE_S:g} s"
            ) from None
        if done.returncode != 0:
            raise PartFailedError(
                "formatting the broker's data folder failed: " + (done.stderr or done.stdout)[-800:]
            )

    def _answers(self) -> bool:
        # Without this check the client library logs each refused connection.
        if not accepts(self.port):
            return False
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=ADMIN_DEADLINE_S).brokers)
        except KafkaException:
            return False


def _new_cluster_id() -> str:
    """Return a UUID as Kafka writes it: base64url without padding, without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
