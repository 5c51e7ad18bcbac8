"""What the consumer checks in Kafka before Spark starts.

Spark would wait for minutes and then fail with a stack trace; here one sentence names the fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from tidegate.lineage.subscription import Subscription
from tidegate.program.kafka_clients import list_topics, require_own_prefix
from tidegate.program.status_server import Health
from tidegate.schemas.errors import UnreachableError

_POLL_SECONDS = 2.0
_REPORT_SECONDS = 30.0


def wait_for_topics(
    bootstrap_servers: str,
    subscription: Subscription,
    *,
    stop: threading.Event,
    health: Health,
    options: Mapping[str, str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Block until the topics exist without which Spark cannot start; return False if stopped.

    Logs the missing topics at once and every 30 seconds.  `options` are librdkafka's and may hold
    secrets; `now` returns seconds and never goes back.  Raises what `find_missing_topics` raises,
    but a broker that stops answering later is waited for as well.
    """
    log = structlog.get_logger("tidegate.spark_consumer")
    missing = find_missing_topics(bootstrap_servers, subscription, options=options)
    reported = float("-inf")
    error = ""
    while missing:
        health.step()
        health.set_not_ready(f"waiting for topics: {', '.join(missing)}")
        if now() - reported >= _REPORT_SECONDS:
            reported = now()
            if error:
                log.warning("waiting for Kafka", error=error, topics=missing)
            else:
                log.info("waiting for topics", topics=missing)
        if stop.wait(_POLL_SECONDS):
            return False
        try:
            missing = find_missing_topics(bootstrap_servers, subscription, options=options)
            error = ""
        except UnreachableError as unreachable:
            error = str(unreachable)
    return not stop.is_set()


def find_missing_topics(
    bootstrap_servers: str,
    subscription: Subscription,
    *,
    options: Mapping[str, str] | None = None,
) -> Sequence[str]:
    """Return the topics that Spark needs and the broker does not have.

    Only the progress topic is needed: data topics are discovered while the query runs.  Raises
    UnreachableError if no broker answers, and ConfigError for options or a login that are rejected
    or for another stream whose prefix continues this one's, or this one that one's.
    """
    topics = list_topics(bootstrap_servers, options)
    require_own_prefix(subscription.names, topics)
    return [subscription.progress_topic] if subscription.progress_topic not in topics else []
