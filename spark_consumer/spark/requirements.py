"""Checks the requirements of a query on Spark and its session before it starts.

Otherwise Spark fails late, and in stack traces.  The checks name Delta, Iceberg where one of its
sinks is asked for, and the classes of a login to Kafka.  This module loads without pyspark, so that
it can report that pyspark is missing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.program.extras import is_installed
from tidegate.program.java import require_java
from tidegate.program.spark_versions import (
    DELTA_PYTHON,
    SPARK_LINES,
    SUPPORTED,
    SparkLine,
    installed_line,
    installed_version,
    is_newer,
    line_of,
    require_supported,
)
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.classic_session import require_classic
from tidegate.spark_consumer.config import (
    ICEBERG_RUNTIME,
    LEFT_OUT_PACKAGES,
    LOGIN_PACKAGES,
    ConsumerConfig,
)
from tidegate.spark_consumer.kafka.client_options import one_sided
from tidegate.spark_consumer.kafka.java_options import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DATA_SOURCES = ("kafka", "avro", "delta")
"""By the names that Spark looks them up by: a distribution may have its own classes for them."""

_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
"""The settings without which Spark cannot use Delta; Delta's other settings concern speed."""

_CALLING = "An error occurred while calling"
_TRIAL = (
    "CREATE TABLE {} (id BIGINT) USING delta",
    "MERGE INTO {} t USING (SELECT 1L AS id WHERE false) s ON t.id = s.id WHEN MATCHED THEN DELETE",
)
"""What Delta must be able to do.  Only the driver reads and writes files for it."""


def is_submitted() -> bool:
    """Whether spark-submit started this process, and so decides where and how it runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_spark(*, jars: str) -> None:
    """Raise ConfigError for the first part that a session would miss; starts nothing.

    `jars` is the setting of that name.
    """
    require_python_parts()
    if is_submitted():
        return
    require_java()
    missing = [
        jar for jar in jars.split(",") if jar and "://" not in jar and not Path(jar).is_file()
    ]
    if missing:
        raise ConfigError("jars: file not found", hint="Name files that exist", jars=missing)


def require_python_parts() -> None:
    """Raise ConfigError if pyspark or Delta's Python part is not installed, or is too old."""
    if not is_installed("pyspark"):
        raise ConfigError(
            "pyspark is not installed",
            hint=(
                'Type: pip install "tidegate[local]"; '
                "or use the Python of a cluster's Spark, with spark-submit"
            ),
        )
    if version := installed_version():
        require_supported(version)
    if not is_installed("delta"):
        message = "delta-spark, the Python part of Delta Lake, is not installed"
        # Without its dependencies, which would replace a cluster's pyspark.
        raise ConfigError(
            message, hint=f"Type: pip install --no-deps {DELTA_PYTHON} importlib-metadata"
        )


def require_session(spark: SparkSession) -> None:
    """Raise ConfigError for a session that cannot run the gate; it names all missing settings.

    A Spark version newer than the tested ones is logged only.
    """
    from tidegate.spark_consumer.sinks.delta.tables import (  # noqa: PLC0415 - pyspark is there
        DELTA_SESSION_SETTINGS,
    )

    require_classic(spark)
    require_supported(spark.version)
    if is_newer(spark.version):
        structlog.get_logger("tidegate.spark_consumer").warning(
            "Spark is newer than the tested versions",
            version=spark.version,
            tested=SUPPORTED,
            packages=line_of(spark.version).packages,
        )
    missing = [name for name in _DATA_SOURCES if not _has_source(spark, name)]
    needed = {"spark.jars.packages": line_of(spark.version).packages} if missing else {}
    settings = {
        name: DELTA_SESSION_SETTINGS[name]
        for name in _DELTA_SETTINGS
        if DELTA_SESSION_SETTINGS[name] not in _entries(spark.conf.get(name, ""))
    }
    cause = ""
    if settings and not missing:
        cause = _delta_fault(spark)
        settings = settings if cause else {}
    lacks = [f"a data source for {', '.join(missing)}"] if missing else []
    lacks += [f"Delta's {name}" for name in settings]
    if lacks:
        message = f"the Spark session lacks {'; '.join(lacks)}"
        values = " and ".join(f"{name}={value}" for name, value in {**needed, **settings}.items())
        raise ConfigError(
            message,
            hint=(
                f"Stop it and start it with {values}; spark-submit takes packages as --packages and"
                " the rest as --conf, and tidegate.session() sets all of it"
            ),
            **({"cause": cause} if cause else {}),
        )


def _has_source(spark: SparkSession, name: str) -> bool:
    """Whether Spark knows a data source, whichever class it is."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - it comes with pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no public call
    settings = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - as above
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, settings)
    except (Py4JError, PySparkException):
        return False
    return True


def _delta_fault(spark: SparkSession) -> str:
    """Return why Delta does not work in a session without its usual settings; empty if it does.

    A distribution with its own Delta has other settings, or none.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-delta-") as folder:
        table = f"delta.`file:{folder}/trial`"
        try:
            for statement in _TRIAL:
                spark.sql(statement.format(table))
        except Exception as error:  # noqa: BLE001 - whatever a distribution raises
            # py4j's first line names its own call only.
            lines = (line.lstrip(": ") for line in str(error).splitlines())
            causes = (line for line in lines if line and not line.startswith(_CALLING))
            return next(causes, type(error).__name__)
    return ""


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",")]


_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"


def require_iceberg_package(*, packages: str, jars: str) -> None:
    """Raise ConfigError if Iceberg has no runtime for the installed Spark, and none is named.

    `packages` and `jars` are the settings of those names.
    """
    line = installed_line()
    is_named = bool(jars) or not packages or ICEBERG_RUNTIME in packages
    if not line.iceberg and not is_named and not is_submitted():
        raise _no_runtime(line)


def _no_runtime(line: SparkLine) -> ConfigError:
    minors = [line.minor for line in SPARK_LINES if line.iceberg]
    return ConfigError(
        f"Iceberg has no runtime for Spark {line.minor} yet, which the sinks iceberg_… need",
        hint=f"Use Spark {' or '.join(minors)}, or name a runtime of your own in packages or jars",
        spark=line.minor,
    )


def require_iceberg(spark: SparkSession, *, catalog: str = "") -> None:
    """Raise ConfigError for a session without Iceberg, or without the catalog that is set."""
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - there is no public call
    if not loads(_CATALOG_CLASS):
        line = line_of(spark.version)
        if not line.iceberg:
            raise _no_runtime(line)
        raise ConfigError(
            "the Spark session lacks Iceberg, which the sinks iceberg_… need",
            hint=(
                f"Stop it and start it with {line.iceberg_packages} among spark.jars.packages, or "
                "its jar among spark.jars; tidegate.session(iceberg=True) does it"
            ),
        )
    if catalog and not spark.conf.get(f"spark.sql.catalog.{catalog}", None):
        raise ConfigError(
            "iceberg_catalog: the session has no catalog of this name",
            hint=(
                f"Set spark.sql.catalog.{catalog}={_CATALOG_CLASS} and its type in the session, or "
                "leave iceberg_catalog empty for a Hadoop catalog in the output"
            ),
            iceberg_catalog=catalog,
        )


_MODULE = "sasl.jaas.config"
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_PRESENT = "org.apache.kafka."
"""Classes that Kafka's client itself has."""


def require_login(spark: SparkSession, config: ConsumerConfig) -> None:
    """Raise ConfigError for a session that lacks a class of the login.

    Options that only one of the two Kafka clients gets are a line in the log.
    """
    java, native = one_sided(config.kafka_options)
    if java or native:
        structlog.get_logger("tidegate.spark_consumer").info(
            "Kafka options of one client", java=java, librdkafka=native
        )
    options = java_options(config.given_kafka_options(), login=config.kafka_login)
    _allow_endpoint(spark, options)
    needed = [name for name in login_classes(options) if not name.startswith(_PRESENT)]
    if not needed:
        return
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - there is no public call
    for name in needed:
        if not loads(name):
            raise ConfigError(
                f"the Spark session lacks the class {name}, with which Spark logs in to Kafka",
                hint=_hint(name),
            )


def _allow_endpoint(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Allow the token endpoint in the driver's JVM: Kafka's client needs this from 3.9.1 on."""
    url = options.get(_ENDPOINT)
    if url is None:
        return
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no call for it
    allowed = list(filter(None, (system.getProperty(_ALLOWED) or "").split(",")))
    if url not in allowed:
        system.setProperty(_ALLOWED, ",".join([*allowed, url]))


def login_classes(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the classes that a login's options name, those of its handlers first."""
    handlers = [options[name] for name in _HANDLERS if name in options]
    return (*handlers, *options.get(_MODULE, "").split()[:1])


def _hint(name: str) -> str:
    groups = {package.partition(":")[0]: package for package in LOGIN_PACKAGES.values()}
    package = next((groups[group] for group in groups if name.startswith(group)), None)
    if package is None:
        return "Stop it and start it with the jar of the class among spark.jars"
    return (
        f"Stop it and start it with {package} among spark.jars.packages, and "
        f"{LEFT_OUT_PACKAGES} in spark.jars.excludes"
    )


SETTING = "spark.sql.redaction.string.regex"
"""What Spark replaces in the texts of plans."""

_KINDS = "(?i:password|secret|token|passphrase|assertion|credential)"
_LOGINS = (
    # In `sasl.jaas.config`, quoted or not.
    rf'(?s:\w*{_KINDS}\w*\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;",)]+))'
    r"|(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)"
    # An option, up to the next one, the end of all, or else the end of the text.
    rf"|(?s:{_KINDS} -> .*?(?=, [\w.]+ -> |\),None|$))"
)


def hide_logins(spark: SparkSession) -> None:
    """Make a session redact logins in the texts of plans, in addition to its own pattern.

    Spark's Kafka source takes its login as an option, and a plan's text (explain, the UI, the event
    log) shows the options of a source.
    """
    pattern = spark.conf.get(SETTING, "") or ""
    if _LOGINS not in pattern:
        spark.conf.set(SETTING, f"{pattern}|{_LOGINS}" if pattern else _LOGINS)
