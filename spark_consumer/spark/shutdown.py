"""Lets a run finish its batch before the JVM ends.

SIGTERM to spark-submit, or to a whole process group, reaches the JVM, whose hooks stop Spark's
context, and with it the batch.  The hook here runs before these, and returns when the run has
stopped in order.  How long that may take is decided by the sender of the signal: SIGKILL ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no types
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

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
        """What py4j asks for."""

        implements = ("java.lang.Runnable",)


@contextmanager
def stopped_before_java(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Set `stop` when the JVM is asked to end, which then waits for the end of this block.

    The block has to end soon after `stop` is set, and may stop the session.
    """
    context: Any = spark.sparkContext
    gateway = context._gateway  # noqa: SLF001 - pyspark has no way of its own
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
        hook.ended.set()
        # It cannot be removed while the JVM ends, or from a JVM that is gone.
        with suppress(Py4JError, OSError):
            hooks.removeShutdownHook(runnable)
