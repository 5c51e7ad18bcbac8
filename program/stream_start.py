"""Reads the start of a stream from its progress topic, for programs that are not workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tidegate.program.kafka_clients import KafkaClientLog, consume_from_beginning
from tidegate.program.kafka_errors import (
    AT_END,
    GROUP_DENIED,
    is_denied,
    kafka_failure,
    not_read_to_end,
)
from tidegate.schemas.progress import StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

if TYPE_CHECKING:
    from tidegate.program.settings_stream import StreamSettings


_PATIENCE_S = 30.0
_POLL_S = 0.5
_BATCH_MAX = 100
_ROOT_SLOT = slot_of(ROOT_TOKEN, slots=1)
"""The slot of the root with any number of slots: the checksum of an empty token is 0."""


def recorded_filters(
    topic: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, Any],
    schema_of: Callable[[int], Mapping[str, Any]],
) -> tuple[str, ...] | None:
    """Return `StreamStarted.filters`; blocks and raises as `recorded_start` does."""
    started = recorded_start(
        topic, bootstrap_servers=bootstrap_servers, options=options, schema_of=schema_of
    )
    return None if started is None else started.filters


def recorded_start(
    topic: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, Any],
    schema_of: Callable[[int], Mapping[str, Any]],
) -> StreamStarted | None:
    """Return the first `StreamStarted` of an existing progress topic; None if there is none yet.

    Blocks for seconds; joins no group, and needs no right to one.  Raises ConfigError if Kafka
    denies access, UnreadableProgress for a record that cannot be decoded, and UnreachableError if
    the topic cannot be read to its end.
    """
    decoder = ProgressDecoder(schema_of)
    consumer = consume_from_beginning(
        topic,
        [_ROOT_SLOT],
        bootstrap_servers=bootstrap_servers,
        client_group=f"{topic}-start",
        options=options,
    )
    reported = None
    give_up_at = time.monotonic() + _PATIENCE_S
    with closing(consumer):
        while time.monotonic() < give_up_at:
            for message in consumer.consume(_BATCH_MAX, _POLL_S):
                error, value = message.error(), message.value()
                if error is not None:
                    if error.code() == GROUP_DENIED:
                        continue  # the client looks for the group's coordinator, and needs none
                    if is_denied(error):
                        raise kafka_failure(error, attempt=f"cannot read topic {topic}")
                    if error.code() == AT_END:
                        return None
                    reported = error
                    continue
                reported = None
                if value is not None:
                    place = {"topic": topic, "slot": _ROOT_SLOT, "offset": message.offset()}
                    body = decoder.decode_at(value, **place).body
                    if isinstance(body, StreamStarted) and body.chunk == 0:
                        return body
    raise not_read_to_end("the progress topic", topic=topic, reported=reported)


def require_topic_names(
    settings: StreamSettings, schema_of: Callable[[int], Mapping[str, Any]]
) -> None:
    """Raise ConfigError for a stream that was started with another `topic_template`.

    Otherwise its data topics would be treated as foreign ones: neither read nor removed.  The
    progress topic exists; a stream that has not started passes.  Raises the errors of
    `recorded_filters`.
    """
    names = settings.topic_names
    filters = recorded_filters(
        names.progress,
        bootstrap_servers=settings.bootstrap_servers,
        options={**settings.kafka_client_options(), "logger": KafkaClientLog()},
        schema_of=schema_of,
    )
    if filters is not None:
        names.require_recorded(filters)
