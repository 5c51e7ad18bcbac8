"""Kafka clients made from settings: their log, a probe, and reads from the beginning."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import structlog
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from tidegate.program.kafka_errors import GROUP_DENIED, is_decisive, is_denied, kafka_failure
from tidegate.program.tokens import KafkaTokens
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import TEMPLATE_DEFAULT, TEMPLATE_SETTING, TopicNames

_INTERVAL_S = 60.0


class KafkaClientLog:
    """The `logger` of confluent-kafka clients: at most one line per kind and interval.

    librdkafka reports a broker that is down several times a second, for every connection.  A kind
    is librdkafka's facility, such as `FAIL` or `SSL`; the next line of a kind gives the number of
    lines left out.  One object serves all clients of a process, from any thread.
    """

    def __init__(
        self, *, interval_s: float = _INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with nothing written; `clock` returns seconds and never goes back."""
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._written_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self._log = structlog.get_logger()

    def log(self, level: int, template: str, *arguments: str) -> None:
        """Write or count one line; the signature is that of `logging.Logger.log`."""
        kind, client, text = arguments if len(arguments) == 3 else ("", "", template % arguments)
        with self._lock:
            now = self._clock()
            if now - self._written_at.get(kind, float("-inf")) < self._interval_s:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._written_at[kind] = now
            left_out = self._left_out.pop(kind, 0)
        fields = {"kind": kind, "client": client, "text": text, "left_out": left_out}
        if level >= logging.WARNING:
            self._log.warning("Kafka client", **fields)
        else:
            self._log.info("Kafka client", **fields)


_Client = TypeVar("_Client")
_PROBE_S = 10.0
_CALL_S = 1.0


def make_client(kind: Callable[[dict[str, Any]], _Client], config: Mapping[str, Any]) -> _Client:
    """Return a client.

    Raises ConfigError with the options that librdkafka rejects; their values are left out of the
    text, because any of them may be a secret.  Raises UnreachableError if a login needs a token and
    there is none.
    """
    if isinstance(tokens := config.get("oauth_cb"), KafkaTokens):
        tokens.prepare()
    try:
        return kind(dict(config))
    except (KafkaException, ValueError, TypeError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        for value in sorted(map(str, config.values()), key=len, reverse=True):
            # As a word, but not as a part of an option's name, such as `ssl.key.location`.
            word = rf"(?<![\w.]){re.escape(value)}(?!\.?\w)"
            text = re.sub(word, "***", text) if value else text
        raise ConfigError(
            f"kafka_options: the Kafka client rejects them: {text}",
            hint="Check names and values against librdkafka's CONFIGURATION.md",
        ) from None


def admin_config(
    bootstrap_servers: str, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an admin client's options, without a log: its calls raise their errors.

    A `logger` is removed: its lines would pile up, because nothing polls an admin client.
    """
    base_options = {name: value for name, value in (options or {}).items() if name != "logger"}
    return {**base_options, "bootstrap.servers": bootstrap_servers, "log_level": 0}


def list_topics(
    bootstrap_servers: str,
    options: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = _PROBE_S,
    now: Callable[[], float] = time.monotonic,
) -> frozenset[str]:
    """Return the topics that this principal may see; blocks for at most `timeout_s`.

    Raises ConfigError for a login, TLS settings or options that the broker or client rejects, and
    UnreachableError if no broker answers.
    """
    reported: list[KafkaError] = []
    client = make_client(
        AdminClient,
        {**admin_config(bootstrap_servers, options), "error_cb": reported.append},
    )
    give_up_at = now() + timeout_s
    while True:
        try:
            return frozenset(client.list_topics(timeout=min(_CALL_S, timeout_s)).topics)
        except KafkaException as error:
            client.poll(0)  # passes on the errors that it has reported
            if now() >= give_up_at or any(map(is_decisive, reported)):
                raise kafka_failure(
                    error.args[0], bootstrap_servers=bootstrap_servers, reported=reported
                ) from error


def require_own_prefix(names: TopicNames, topics: Iterable[str]) -> None:
    """Raise ConfigError if another stream's data topics could be confused with this stream's."""
    overlapping = names.overlapping(topics)
    if overlapping:
        message = f"prefix: {names.prefix!r} and the prefix of another stream continue each other"
        hint = "Use another prefix: some data topics would belong to both streams"
        if names.template != TEMPLATE_DEFAULT:
            hint = hint.replace(":", f", or another {TEMPLATE_SETTING} than {names.template}:")
        raise ConfigError(message, hint=hint, topics=overlapping)


_SMALL_RECORDS = {"queued.max.messages.kbytes": 8 << 10}
_PATIENCE_S = 30.0
_ANSWER_S = 5.0
_RETRY_PAUSE_S = 0.2
_REPORTS_MAX = 100


def consume_from_beginning(
    topic: str,
    numbers: Iterable[int],
    *,
    bootstrap_servers: str,
    client_group: str,
    options: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] = _SMALL_RECORDS,
) -> Consumer:
    """Return a consumer of committed records, which reports each end that it reaches.

    An offset that is no longer in the log is reported as an error (`kafka_errors.OUT_OF_RANGE`);
    the consumer never restarts from the beginning by itself.  `client_group` only names the client:
    it neither joins the group nor commits to it.  `sizes` are the client's options for fetch and
    buffer sizes.  Blocks and raises as `assign_beginnings` does.
    """
    consumer = make_client(
        Consumer,
        {
            "bootstrap.servers": bootstrap_servers,
            **(options or {}),
            "group.id": client_group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **sizes,
        },
    )
    try:
        assign_beginnings(consumer, topic, numbers)
    except BaseException:
        consumer.close()
        raise
    return consumer


def assign_beginnings(consumer: Consumer, topic: str, numbers: Iterable[int]) -> None:
    """Assign topic partitions to a consumer from their beginnings.

    Blocks until their first offsets are known.  Raises ConfigError if Kafka denies access, and
    UnreachableError if no leader answers within half a minute.
    """
    give_up_at = time.monotonic() + _PATIENCE_S
    consumer.assign(
        [
            TopicPartition(topic, number, _beginning(consumer, topic, number, give_up_at))
            for number in numbers
        ]
    )


def _beginning(consumer: Consumer, topic: str, number: int, give_up_at: float) -> int:
    """Return the first offset of a topic partition.

    The client does not find it by `OFFSET_BEGINNING`: if a leader does not yet know a new topic,
    the client gives up and reports the offset as out of range.
    """
    while True:
        failure: KafkaError = KafkaError(KafkaError._TIMED_OUT, "no answer")  # noqa: SLF001 - a public constant
        try:
            offsets = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=_ANSWER_S
            )
        except KafkaException as error:
            offsets, failure = None, error.args[0]
        if offsets is not None:
            return int(offsets[0])
        reports = [message.error() for message in consumer.consume(_REPORTS_MAX, 0.0)]
        reported = [
            error_or_none
            for error_or_none in reports
            if error_or_none is not None and error_or_none.code() != GROUP_DENIED
        ]
        is_final = is_denied(failure) or any(map(is_decisive, reported))
        if is_final or time.monotonic() >= give_up_at:
            raise kafka_failure(failure, attempt=f"cannot read topic {topic}", reported=reported)
        time.sleep(_RETRY_PAUSE_S)


def listed_offset(answer: ListOffsetsResultInfo) -> int:
    """Return the offset; -1 if Kafka has none for the requested time.

    Raises KafkaException for an answer without an offset: librdkafka 2.16 returns it, without an
    error, while a broker that was killed restarts.
    """
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(
            KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the broker's answer holds no offset")
        )
    return int(answer.offset)
