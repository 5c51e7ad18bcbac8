"""Options of Kafka's two clients: Java's, with which Spark reads, and librdkafka, for the rest.

`kafka_options` takes both clients' names.  Options that have the same name in both go to both;
options of one client for login and TLS are translated for the other; every other option goes to the
client that has it.  Values may be secrets: no error holds one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

_CHECKPOINT = "where reading begins and goes on is in the checkpoint"
_SPARK = "Spark assigns topic partitions, and no group is joined"
_BYTES = "keys and values are read as bytes"
_RELEASE = "the sink topic publishes each release in one transaction"
_SET_BY_CLIENTS = "the consumer's own clients set it"

REFUSED_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "set bootstrap_servers",
    "metadata.broker.list": "set bootstrap_servers",
    "oauth_cb": "set kafka_login",
    "group.*": _SPARK,
    "partition.assignment.strategy": _SPARK,
    "session.timeout.ms": _SPARK,
    "heartbeat.interval.ms": _SPARK,
    "share.*": _SPARK,
    "auto.offset.reset": _CHECKPOINT,
    "auto.commit.*": _CHECKPOINT,
    "enable.auto.commit": _CHECKPOINT,
    "enable.auto.offset.store": _CHECKPOINT,
    "isolation.level": "only records of committed transactions are changes",
    "interceptor.classes": "Spark refuses it, as an interceptor could change records",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "allow.auto.create.topics": "a topic that does not exist is waited for",
    "ssl.cipher.suites": "the two clients have different names for the suites",
    "acks": _RELEASE,
    "request.required.acks": _RELEASE,
    "enable.idempotence": _RELEASE,
    "enable.gapless.guarantee": _RELEASE,
    "transactional.id": _RELEASE,
    "transaction.timeout.ms": _RELEASE,
    "message.timeout.ms": _RELEASE,
    "delivery.timeout.ms": _RELEASE,
    "message.max.bytes": _RELEASE,
    "partitioner": _RELEASE,
    "delivery.report.only.error": _SET_BY_CLIENTS,
    "dr_*": _SET_BY_CLIENTS,
    "*_cb": _SET_BY_CLIENTS,
    "on_delivery": _SET_BY_CLIENTS,
    "enable.partition.eof": _SET_BY_CLIENTS,
    "produce.offset.report": _SET_BY_CLIENTS,
    "queuing.strategy": _SET_BY_CLIENTS,
    "topic.blacklist": _SET_BY_CLIENTS,
    "test.mock.*": "it replaces the brokers by some that librdkafka imitates",
}
"""Pattern of a name, `*` for any text -> why the consumer refuses it."""

SHARED_OPTIONS = frozenset(
    {
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)
"""What goes to both clients under one name."""

TRANSLATED_OPTIONS = frozenset(
    {
        "sasl.mechanisms",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
    }
)
"""librdkafka's names of options that have other names in Java's client."""

JAVA_OPTIONS = frozenset(
    {
        "auto.include.jmx.reporter",
        "config.providers",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "fetch.max.wait.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "request.timeout.ms",
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""What Java's client alone gets, as Kafka 3.9 to 4.1 name it; the login and TLS are translated."""

_LOGIN_TEXT = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.DOTALL
)
_LOGIN_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', re.DOTALL)
_BEARER_MODULE = "OAuthBearerLoginModule"
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")
_EXTENSION = "extension_"


def refusals(names: Mapping[str, object]) -> list[str]:
    """Return a text for each option that is refused, with the reason."""
    return [
        f"{name}: {reason}"
        for name in sorted(names)
        for reason in [
            why for pattern, why in REFUSED_OPTIONS.items() if fnmatchcase(name, pattern)
        ][:1]
    ]


def one_sided(names: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Return the options that only Java's client gets, and those that only librdkafka gets."""
    java = sorted(name for name in names if name in JAVA_OPTIONS)
    for_java = SHARED_OPTIONS | TRANSLATED_OPTIONS | JAVA_OPTIONS
    return java, sorted(name for name in names if name not in for_java)


def librdkafka_options(options: Mapping[str, str], *, has_login: bool = False) -> dict[str, str]:
    """Return librdkafka's options from the settings, with Java's login and TLS translated.

    `has_login` says that `kafka_login` is set, which logs librdkafka in.  Raises ValueError for a
    login or a store that librdkafka has no option for, if no other option replaces it.
    """
    for_librdkafka = {name: value for name, value in options.items() if name not in JAVA_OPTIONS}
    login = {} if has_login else _login(options)
    if for_librdkafka.get("ssl.endpoint.identification.algorithm") == "":
        for_librdkafka["ssl.endpoint.identification.algorithm"] = "none"
    return {**login, **_tls(options), **for_librdkafka}


def jaas_login(text: str) -> tuple[str, dict[str, str]]:
    """Return the class of a login module in `sasl.jaas.config`, and its options.

    Raises ValueError for a text that Kafka would not take.
    """
    parsed = _LOGIN_TEXT.fullmatch(text)
    if parsed is None:
        raise ValueError('sasl.jaas.config: must be `<class> required <name>="<value>" …;`')
    options = {
        name: plain or re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        for name, quoted, plain in _LOGIN_OPTION.findall(parsed[2])
    }
    return parsed[1], options


def _login(options: Mapping[str, str]) -> dict[str, str]:
    text = options.get("sasl.jaas.config")
    has_own = "sasl.username" in options or "sasl.oauthbearer.method" in options
    if text is None or has_own:
        return {}
    module, values = jaas_login(text)
    if module.endswith(_PASSWORD_MODULES) and {"username", "password"} <= values.keys():
        return {"sasl.username": values["username"], "sasl.password": values["password"]}
    has_endpoint = "sasl.oauthbearer.token.endpoint.url" in options
    credentials = {
        "sasl.oauthbearer.client.id": values.get("clientId"),
        "sasl.oauthbearer.client.secret": values.get("clientSecret"),
        "sasl.oauthbearer.scope": values.get("scope"),
        "sasl.oauthbearer.extensions": ",".join(
            f"{name.removeprefix(_EXTENSION)}={value}"
            for name, value in values.items()
            if name.startswith(_EXTENSION)
        ),
    }
    if module.endswith(_BEARER_MODULE) and has_endpoint and "clientId" in values:
        given = {name: value for name, value in credentials.items() if value}
        return {"sasl.oauthbearer.method": "oidc", **given}
    raise ValueError(
        f"sasl.jaas.config: {module} is a login of Java, with which Spark reads; the consumer's "
        "own client needs one too: set kafka_login, or librdkafka's options beside it"
    )


def _tls(options: Mapping[str, str]) -> dict[str, str]:
    tls: dict[str, str] = {}
    has_ca = "ssl.ca.location" in options or "ssl.ca.pem" in options
    if "ssl.truststore.certificates" in options:
        tls["ssl.ca.pem"] = options["ssl.truststore.certificates"]
    elif "ssl.truststore.location" in options and not has_ca:
        if options.get("ssl.truststore.type", "").upper() != "PEM":
            raise ValueError(
                "ssl.truststore.location: the consumer's own client reads PEM only: set "
                "ssl.ca.location beside it, or ssl.truststore.type to PEM"
            )
        tls["ssl.ca.location"] = options["ssl.truststore.location"]
    if "ssl.keystore.certificate.chain" in options:
        tls["ssl.certificate.pem"] = options["ssl.keystore.certificate.chain"]
    if "ssl.keystore.key" in options:
        tls["ssl.key.pem"] = options["ssl.keystore.key"]
    return tls
