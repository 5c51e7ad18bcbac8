"""The Spark session of a run: a new session, or the one that spark-submit has prepared.

Settings in a program override those of spark-submit, so a submitted session gets Delta's
settings and nothing else: no master, no addresses, no sizes.

The lines that the JVM of a local session writes to standard error while it starts are those of
Apache Ivy, hundreds at the first start, and warnings about the machine.  They are shown if it does
not start.

SIGTERM to spark-submit, or to a whole process group, reaches the JVM, whose hooks stop Spark's
context, and with it the batch.  A hook runs before these, and returns when the run has stopped in
order.  How long that may take is decided by the sender of the signal: SIGKILL ends it.

Spark's context takes SIGINT from a program that has its own handler, and would cancel the batch;
the program gets it back.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.config import LEFT_OUT_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.spark.requirements import is_submitted

_STANDARD_ERROR = 2
_LINES_MAX = 300
_LOG_LINE = re.compile(rb"\{|\x1b\[|\d{4}-\d\d-")
"""How a line of our log begins: with JSON, or for people with the date, in colour or not."""

_LAST_LINES_S = 2.0
"""How long to wait for the last lines of a JVM; its output ends only if it dies."""


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back the lines of a JVM that starts within the block until the block has ended.

    If the block raises, the last lines are shown.  Later lines of the JVM are passed on.  Lines of
    this process's other threads are passed on at once.
    """
    try:
        standard_error = os.dup(_STANDARD_ERROR)
    except OSError:  # closed
        yield
        return
    read, write = os.pipe()
    os.dup2(write, _STANDARD_ERROR)
    os.close(write)
    lines, has_ended = _Lines(standard_error), threading.Event()

    def copy() -> None:
        lines.copy(read)
        has_ended.wait()
        os.close(standard_error)

    copying = threading.Thread(target=copy, name="java-lines", daemon=True)
    copying.start()
    try:
        yield
    except BaseException:
        os.dup2(standard_error, _STANDARD_ERROR)
        lines.wait(_LAST_LINES_S)
        lines.show()
        raise
    else:
        os.dup2(standard_error, _STANDARD_ERROR)
        lines.drop()
    finally:
        has_ended.set()


class _Lines:
    """Lines on the way to a file descriptor."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._held: deque[bytes] | None = deque(maxlen=_LINES_MAX)
        self._has_all = threading.Event()

    def copy(self, source: int) -> None:
        """Read lines to the end of a file descriptor, and pass them on or hold them."""
        with os.fdopen(source, "rb") as lines:
            for line in lines:
                with self._lock:
                    if self._held is None or _LOG_LINE.match(line):
                        self._write(line)
                    else:
                        self._held.append(line)
        self._has_all.set()

    def wait(self, seconds: float) -> None:
        """Block until the end has been read, for some seconds at most."""
        self._has_all.wait(seconds)

    def show(self) -> None:
        """Pass on the held lines and all later lines."""
        with self._lock:
            for line in self._held or ():
                self._write(line)
            self._held = None

    def drop(self) -> None:
        """Drop the held lines, and pass on all later lines."""
        with self._lock:
            self._held = None

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._target, line) :]


_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Fixed costs decide on one machine: few tasks.
    "spark.sql.shuffle.partitions": "2",
    # A MERGE of a small batch is 5 jobs without it and 11 with it, for plans that are good already.
    "spark.sql.adaptive.enabled": "false",
    # Each batch runs the plans of the one before; the cache of 100 compiled classes was too small
    # for those of two tables, so that every batch compiled them again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Cached rows are read once or twice, and most are bytes, which are not compressed anyway.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Standard error is for our own lines.
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

_STREAMING = "org.apache.spark.sql.execution.streaming"
_FAILED_QUERIES_LOGS = (
    f"{_STREAMING}.MicroBatchExecution",
    f"{_STREAMING}.runtime.MicroBatchExecution",  # since Spark 4.1
)
"""Print the stack trace of a query that failed, an expected one too; the run reports the error."""


_FIRST_START = {"hint": "the first start fetches the packages, which can take minutes"}


def session_of(config: ConsumerConfig) -> SparkSession:
    """Start the session of the settings, or the one that spark-submit has prepared."""
    app_name = f"tidegate-{config.prefix}"
    with _own_interrupt():
        if is_submitted():
            return submitted_session(app_name=app_name)
        log = structlog.get_logger("tidegate.spark_consumer")
        packages = "" if config.jars else config.session_packages
        log.info("Spark starts", packages=packages, **(_FIRST_START if packages else {}))
        return local_session(
            master=config.master,
            packages=config.session_packages,
            jars=config.jars,
            app_name=app_name,
            java_options=config.java_options,
        )


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the program's handler of SIGINT, if it has one, while a context is made."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not signal.default_int_handler:
            signal.signal(signal.SIGINT, handler)


def submitted_session(*, app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start the session that spark-submit has prepared, with the settings that the sinks require.

    `settings` are the program's own.
    """
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**DELTA_SESSION_SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def local_session(
    *,
    master: str,
    packages: str,
    jars: str,
    app_name: str,
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a session on this machine, with `jars` if there are any, else with `packages`.

    `settings` are the program's own: they replace those that a local session has.

    Spark fetches packages by Apache Ivy, with this machine's settings for it, and keeps them in its
    cache.  Raises UnreachableError if Spark does not start, most often because a package is not
    available.
    """
    # Otherwise Python workers would use the `python3` on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    defaults = {**_SETTINGS, **DELTA_SESSION_SETTINGS}
    if jars:
        defaults["spark.jars"] = jars
    elif packages:
        defaults["spark.jars.packages"] = packages
        defaults["spark.jars.excludes"] = LEFT_OUT_PACKAGES
    if java_options:
        defaults["spark.driver.extraJavaOptions"] = java_options
    for name, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        with held_back():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UnreachableError(
            "Spark does not start; its own lines above say why",
            hint="If it cannot fetch packages, set jars to jar files of the same names",
            cause=error.getCondition(),
        ) from error
    for logger in _FAILED_QUERIES_LOGS:
        _silence(spark, logger)
    return spark


def _silence(spark: SparkSession, logger: str) -> None:
    """Keep what one of the JVM's loggers says out of standard error."""
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no call for it
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


_BEFORE_SPARKS_HOOKS = 100
"""A priority of Hadoop's, which runs the highest first; Spark's hooks have 40."""

_LIMIT_S = 24 * 3_600
"""Without one, Hadoop gives a hook 30 seconds."""


class _Hook:
    """A `java.lang.Runnable`."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.ended = threading.Event()

    def run(self) -> None:
        """Stop the run; return when it has ended."""
        self.stop.set()
        self.ended.wait()

    class Java:
        """The Java interface, as py4j reads it."""

        implements = ("java.lang.Runnable",)


@contextmanager
def stopped_before_java(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Set `stop` when the JVM is asked to end, which then waits for the end of this block.

    The block has to end soon after `stop` is set, and may stop the session.
    """
    context: Any = spark.sparkContext
    gateway = context._gateway  # noqa: SLF001 - pyspark has no call for it
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # has no types
    jvm, hook = gateway.jvm, _Hook(stop)
    hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    # The thread is never started: as an object of Java's it can be removed again.
    runnable = jvm.java.lang.Thread(hook)
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(runnable, _BEFORE_SPARKS_HOOKS, _LIMIT_S, seconds)
    try:
        yield
    finally:
        # It cannot be removed while the JVM ends, or from a JVM that is gone.  A JVM that waits for
        # the end is still there to say so; one that no longer waits would end in the call.
        with suppress(Py4JError, OSError):
            hooks.removeShutdownHook(runnable)
        hook.ended.set()
