"""Options of the Kafka client, from librdkafka's words into Java's, which Spark's sources use.

One block of settings serves the fleet and the gate.  Certificates are read here and passed on as
text, so that executors need no files.  Values are secrets: no error may hold one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.program.token_sources import AWS, GOOGLE, NO_LOGIN
from tidegate.schemas.errors import ConfigError

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_TOKENS = {
    GOOGLE: {
        "sasl.mechanism": "OAUTHBEARER",
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
_TRANSLATED = ("sasl.", "ssl.", "security.protocol")


def java_options(options: Mapping[str, str], *, login: str = NO_LOGIN) -> dict[str, str]:
    """Return what Java's client takes for the options that the settings allow, and `kafka_login`.

    Raises ConfigError for options that do not belong together, and for files that are not there.
    """
    if login != NO_LOGIN:
        return {**_tokens(login), **java_options(options)}
    translated = {n: value for n, value in options.items() if not n.startswith(_TRANSLATED)}
    if "security.protocol" in options:
        translated["security.protocol"] = options["security.protocol"].upper()
    return {**translated, **_login(options), **_tls(options)}


def _tokens(login: str) -> dict[str, str]:
    if login in _TOKENS:
        return {"security.protocol": "SASL_SSL", **_TOKENS[login]}
    raise ConfigError(
        f"kafka_login: Spark reads Kafka in Java, in which there is no function {login}",
        hint='Use "google", "aws" or a login of kafka_options',
    )


def _login(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanisms") or options.get("sasl.mechanism")
    user, password = options.get("sasl.username"), options.get("sasl.password")
    if mechanism is None and user is None and password is None:
        return {}
    if mechanism is None or user is None or password is None:
        raise ConfigError(
            "kafka_options: a login needs sasl.mechanism, sasl.username and sasl.password",
            hint="Set all three, or none",
        )
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise ConfigError(
            "kafka_options: the consumer does not know this sasl.mechanism",
            hint=f"Use one of {', '.join(_LOGIN_MODULES)}",
        )
    login = f"{module} required username={_quoted(user)} password={_quoted(password)};"
    return {"sasl.mechanism": mechanism.upper(), "sasl.jaas.config": login}


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
    if "ssl.key.password" in options:
        translated["ssl.key.password"] = options["ssl.key.password"]
    if "ssl.endpoint.identification.algorithm" in options:
        algorithm = options["ssl.endpoint.identification.algorithm"]
        # Java's word for none is no word.
        name = "ssl.endpoint.identification.algorithm"
        translated[name] = "" if algorithm == "none" else algorithm
    return translated


def _pem(options: Mapping[str, str], name: str) -> str | None:
    """Return a certificate or key that stands in an option, or in the file that one names."""
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
