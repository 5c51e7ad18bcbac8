"""Options of the Kafka client in Java's words, which Spark's sources use.

One block of settings serves the fleet and the gate: librdkafka's words are translated.
Certificates in those are read here and passed on as text, so that executors need no files.  Values
are secrets: no error may hold one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.program.tokens import AWS, GOOGLE, NO_LOGIN
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.kafka.client_options import JAVA_OPTIONS, SHARED_OPTIONS

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_BEARER = "OAUTHBEARER"
_BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_TOKENS = {
    GOOGLE: {
        "sasl.mechanism": _BEARER,
        "sasl.login.callback.handler.class": (
            "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
        ),
        "sasl.jaas.config": f"{_BEARER_MODULE} required;",
    },
    AWS: {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    },
}
"""`kafka_login` in Java: classes that fetch tokens in each JVM, of the driver and executors."""
_OIDC_HANDLER = f"{_BEARER_MODULE.rpartition('.')[0]}.OAuthBearerLoginCallbackHandler"
_OIDC_VALUES = {
    "clientId": ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
    "clientSecret": (
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    ),
    "scope": ("sasl.oauthbearer.scope",),
}
"""Names in Java's login module -> librdkafka's, which has two for some."""
_HANDLER = "sasl.login.callback.handler.class"
_MODULE = "sasl.jaas.config"


def java_options(options: Mapping[str, str], *, login: str = NO_LOGIN) -> dict[str, str]:
    """Return the options of Java's client, from the settings and from `kafka_login`.

    Options with Java's own names replace translated ones.  Raises ConfigError for options that do
    not belong together, and for files that do not exist.
    """
    shared = {name: value for name, value in options.items() if name in SHARED_OPTIONS}
    java_only = {name: value for name, value in options.items() if name in JAVA_OPTIONS}
    if "security.protocol" in shared:
        shared["security.protocol"] = shared["security.protocol"].upper()
    if "sasl.mechanism" in shared:
        shared["sasl.mechanism"] = shared["sasl.mechanism"].upper()
    if shared.get("ssl.endpoint.identification.algorithm") == "none":
        # Java disables the check by an empty value.
        shared["ssl.endpoint.identification.algorithm"] = ""
    logged_in = _login(options) if login == NO_LOGIN else _tokens(login, options)
    return {**logged_in, **_tls(options), **shared, **java_only}


def _tokens(login: str, options: Mapping[str, str]) -> dict[str, str]:
    if login in _TOKENS:
        return {"security.protocol": "SASL_SSL", **_TOKENS[login]}
    if _HANDLER in options:
        module = f"{_BEARER_MODULE} required;"
        return {"security.protocol": "SASL_SSL", "sasl.mechanism": _BEARER, _MODULE: module}
    raise ConfigError(
        f"kafka_login: Spark reads Kafka in Java, in which there is no function {login}",
        hint=f"Name a class that has the tokens in Java as {_HANDLER} in kafka_options",
    )


def _login(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanisms") or options.get("sasl.mechanism")
    if _MODULE in options:
        return {} if mechanism is None else {"sasl.mechanism": mechanism.upper()}
    if options.get("sasl.oauthbearer.method", "").lower() == "oidc":
        return _oidc(options)
    user, password = options.get("sasl.username"), options.get("sasl.password")
    if mechanism is None and user is None and password is None:
        return {}
    module = None if mechanism is None else _LOGIN_MODULES.get(mechanism.upper())
    if mechanism is not None and module is None:
        raise ConfigError(
            "kafka_options: the consumer does not know this sasl.mechanism",
            hint=f"Use one of {', '.join(_LOGIN_MODULES)}, OAUTHBEARER with "
            f"sasl.oauthbearer.method=oidc, kafka_login, or {_MODULE} for Java",
        )
    if mechanism is None or user is None or password is None:
        raise ConfigError(
            "kafka_options: a login needs sasl.mechanism, sasl.username and sasl.password",
            hint="Set all three, or none",
        )
    login = f"{module} required username={_quoted(user)} password={_quoted(password)};"
    return {"sasl.mechanism": mechanism.upper(), _MODULE: login}


def _oidc(options: Mapping[str, str]) -> dict[str, str]:
    """Return the login by OpenID Connect, for which each JVM calls the token endpoint."""
    values = {
        java: next((options[name] for name in names if name in options), "")
        for java, names in _OIDC_VALUES.items()
    }
    if not values["clientId"] or not values["clientSecret"]:
        raise ConfigError(
            "kafka_options: a login by OIDC needs sasl.oauthbearer.client.id and .client.secret",
            hint=f"Set both, or {_MODULE} and {_HANDLER} for Java",
        )
    for extension in filter(None, options.get("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = extension.partition("=")
        values[f"extension_{name.strip()}"] = value
    text = " ".join(f"{name}={_quoted(value)}" for name, value in values.items() if value)
    return {
        "sasl.mechanism": _BEARER,
        _MODULE: f"{_BEARER_MODULE} required {text};",
        _HANDLER: _OIDC_HANDLER,
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(options: Mapping[str, str]) -> dict[str, str]:
    translated: dict[str, str] = {}
    authorities = _pem(options, "ssl.ca")
    if authorities is not None:
        translated["ssl.truststore.type"] = "PEM"
        translated["ssl.truststore.certificates"] = authorities
    certificate, key = _pem(options, "ssl.certificate"), _pem(options, "ssl.key")
    if (certificate is None) is not (key is None):
        raise ConfigError(
            "kafka_options: ssl.certificate and ssl.key belong together",
            hint="Set both, as .location or as .pem, or none",
        )
    if certificate is not None and key is not None:
        if "PRIVATE KEY-----" not in key or "-----BEGIN RSA" in key or "-----BEGIN EC" in key:
            raise ConfigError(
                "kafka_options: Spark's Kafka client reads a private key in PKCS#8 only",
                hint="Type: openssl pkcs8 -topk8 -in key.pem -out new.pem",
            )
        translated["ssl.keystore.type"] = "PEM"
        translated["ssl.keystore.certificate.chain"] = certificate
        translated["ssl.keystore.key"] = key
    return translated


def _pem(options: Mapping[str, str], name: str) -> str | None:
    """Return a certificate or key from an option, or from the file that an option names."""
    if f"{name}.pem" in options:
        return options[f"{name}.pem"]
    if f"{name}.location" not in options:
        return None
    try:
        return Path(options[f"{name}.location"]).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"kafka_options: the file that {name}.location names cannot be read as PEM",
            hint="Name a file that this user may read, in PEM",
            cause=type(error).__name__,
        ) from None
