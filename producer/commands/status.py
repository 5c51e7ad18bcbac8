"""`tidegate-producer status`: how far a fleet is, read from the progress topic alone.

Needs Kafka and the registry, not Spanner, and changes nothing.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidegate.lineage.fleet_status import fleet_status
from tidegate.producer.commands.environment import open_root_slot, recorded_start
from tidegate.producer.core.events import AccessDenied, ReadInterrupted
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.program.kafka_log import KafkaClientLog
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.errors import ConfigError, ConsumerError, UnreachableError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.topics import TopicNames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.lineage.fleet_status import FleetStatus
    from tidegate.lineage.fleet_view import FleetView
    from tidegate.producer.commands.worker_counts import WorkerCounts
    from tidegate.producer.config import ProducerConfig

__all__ = ["as_json", "lag_s", "read_fleet", "status"]

_PATIENCE_S = 30.0
"""Reading gives up when it has come no further for so long."""
_POLL_S = 0.5


def status(config: ProducerConfig) -> FleetStatus:
    """Return what the progress topic says; raises as `read_fleet` does."""
    view, started, epoch = read_fleet(config)
    return fleet_status(view, started, epoch=epoch)


def read_fleet(config: ProducerConfig) -> tuple[FleetView, StreamStarted, str]:
    """Read all that is in the progress topic; return what slots say, the stream, and the epoch.

    Raises ConfigError for a stream that has not begun, UnreachableError if the topic cannot be read
    to its end, and ConsumerError where its records contradict the protocol.
    """
    names = TopicNames(config.prefix)
    options = {**config.kafka_client_options(), "logger": KafkaClientLog()}
    kafka = KafkaTopics(config.bootstrap_servers, options=options)
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    registry.require_reachable()
    with closing(open_root_slot(config, names, registry, options)) as root_slot:
        recorded = recorded_start(config, kafka, names, root_slot, options)
    if recorded is None or not isinstance(recorded.body, StreamStarted):
        message = f"topic {names.progress} holds no stream: nothing was ever published"
        raise ConfigError(message, hint="Check the prefix")
    follower = ProgressFollower(
        bootstrap_servers=config.bootstrap_servers,
        group=names.group,
        topic=names.progress,
        slots=recorded.body.slots,
        epoch=recorded.epoch,
        decoder=ProgressDecoder(registry.schema),
        options=options,
    )
    with closing(follower):
        _read_to_the_end(follower, names.progress)
    return follower.progress.view, recorded.body, recorded.epoch


def _read_to_the_end(follower: ProgressFollower, topic: str) -> None:
    give_up_at, before = time.monotonic() + _PATIENCE_S, 0
    while not follower.progress.is_at_end:
        found = follower.poll(time.monotonic_ns() // 1_000, _POLL_S)
        if isinstance(found, AccessDenied):
            raise found.error
        if isinstance(found, ReadInterrupted):
            raise ConsumerError(found.reason, topic=topic)
        if follower.progress.position > before:
            give_up_at, before = time.monotonic() + _PATIENCE_S, follower.progress.position
        elif time.monotonic() > give_up_at:
            message = "the progress topic cannot be read to its end"
            hint = "A transaction may be open in it; the broker ends it after its time-out"
            raise UnreachableError(message, hint=hint, topic=topic)


def lag_s(watermark_us: int | None, *, now_us: int) -> float | None:
    """Return how many seconds a watermark is behind."""
    return None if watermark_us is None else round((now_us - watermark_us) / US_PER_SECOND, 3)


def as_json(found: FleetStatus, workers: Iterable[WorkerCounts], *, now_us: int) -> str:
    """Return the status as one JSON object, with the lag of each watermark in seconds.

    `workers` are those that were asked, besides the progress topic.
    """
    plain = {**asdict(found), "workers": [asdict(worker) for worker in workers]}
    for one in (plain, *plain["slots"], *plain["partitions"]):
        watermark_us = one["watermark_us"]
        one["lag_s"] = lag_s(watermark_us, now_us=now_us)
        if watermark_us is not None:
            instant = datetime.fromtimestamp(watermark_us / US_PER_SECOND, UTC)
            one["watermark"] = instant.isoformat()
    return json.dumps(plain, ensure_ascii=False)
