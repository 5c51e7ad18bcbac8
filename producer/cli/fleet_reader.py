"""Reads what a fleet has published about itself: the whole progress topic, and its group's members.

Needs Kafka and the registry, not Spanner, and changes nothing.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from tidegate.lineage.fleet_status import FleetStatus, fleet_status
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.lineage_graph import PartitionHistory
from tidegate.producer.cli.clients import (
    kafka_options,
    open_root_slot,
    recorded_start,
    schema_registry,
)
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.events import AccessDenied, ProgressReadLost, ReadInterrupted
from tidegate.producer.errors import StreamNotStarted
from tidegate.producer.kafka.admin import CommittedOffsets, RetryingAdmin
from tidegate.producer.kafka.group import group_members
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.slots import SlotRecovery
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.program.kafka_clients import admin_config
from tidegate.program.kafka_errors import not_read_to_end
from tidegate.schemas.errors import ConsumerError, UnreachableError
from tidegate.schemas.progress import StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_PATIENCE_S = 30.0
"""Reading gives up when it has made no progress for this long."""
_POLL_S = 0.5
_ROOT_SLOT = slot_of(ROOT_TOKEN, slots=1)
"""The slot of the root with any number of slots: the checksum of an empty token is 0."""


@dataclass(frozen=True, slots=True)
class FleetRecords:
    """The state in the records of an epoch."""

    view: FleetView
    """The fold of all slots."""
    started: StreamStarted
    version: int
    """The version of the record that opened the epoch."""
    epoch: str
    history: PartitionHistory

    @property
    def changes(self) -> int:
        """Number of changes that were published since the epoch began, by the heartbeats."""
        open_changes = sum(
            topic.mods
            for slot in self.view.slots
            for token in (slot.tokens or {}).values()
            for topic in token.totals
        )
        return self.history.finished_changes + open_changes

    def fleet(self) -> FleetStatus:
        """Return the status of the fleet as of these records."""
        return fleet_status(self.view, self.started, epoch=self.epoch)


class FleetReader:
    """Reads the newest epoch of a stream, as often as requested; for one thread."""

    def __init__(self, config: ProducerConfig) -> None:
        """Find the epoch.

        Raises StreamNotStarted for a stream that has not begun, UnreachableError if Kafka or the
        registry does not answer.
        """
        names = config.topic_names
        options = kafka_options(config)
        kafka = KafkaTopics(config.bootstrap_servers, options=options)
        registry = schema_registry(config)
        registry.require_reachable()
        with closing(open_root_slot(config, registry, options)) as root_slot:
            recorded = recorded_start(config, kafka, root_slot, options)
        if recorded is None or not isinstance(recorded.body, StreamStarted):
            raise StreamNotStarted(names.progress)
        self._names = names
        self._admin_config = admin_config(config.bootstrap_servers, options)
        self._admin = RetryingAdmin(self._admin_config)
        history = PartitionHistory(epoch=recorded.epoch)
        self._follower = ProgressFollower(
            bootstrap_servers=config.bootstrap_servers,
            group=names.group,
            topic=names.progress,
            slots=recorded.body.slots,
            epoch=recorded.epoch,
            decoder=ProgressDecoder(registry.schema),
            options=options,
            on_record=history.add,
        )
        self._records = FleetRecords(
            self._follower.progress.view, recorded.body, recorded.version, recorded.epoch, history
        )

    def read(self) -> FleetRecords:
        """Read on to the topic's present end; return the same object each time.

        Raises UnreachableError if the end is not reached, ConsumerError where records contradict
        the protocol, and ProgressLost if a slot lacks the next offset.
        """
        progress = self._follower.progress
        give_up_at, before = time.monotonic() + _PATIENCE_S, 0
        while not progress.is_at_end:
            self._poll(_POLL_S)
            if progress.position > before:
                give_up_at, before = time.monotonic() + _PATIENCE_S, progress.position
            elif time.monotonic() > give_up_at:
                raise self._not_read_to_its_end()
        return self._records

    def read_past_open_transactions(self) -> FleetRecords:
        """Read past everything that is in the root's slot now, including open transactions.

        Records that were committed after the beginning of an open transaction cannot be read before
        that transaction has ended.  Raises as `read` does.
        """
        progress = self._follower.progress
        offsets = CommittedOffsets(self._admin_config, group=self._names.group)
        recovery = SlotRecovery(self._admin, offsets, topic=self._names.progress)
        end, give_up_at = recovery.uncommitted_end(_ROOT_SLOT), time.monotonic() + _PATIENCE_S
        while progress.reached(_ROOT_SLOT) < end:
            self._poll(_POLL_S)
            if time.monotonic() > give_up_at:
                raise self._not_read_to_its_end()
        return self.read()

    def wait(self, seconds: float) -> None:
        """Wait, and read the slots' ends again; the topic is read meanwhile.

        Raises as `read` does.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._poll(min(_POLL_S, left))

    def members(self) -> list[str]:
        """Return the workers that are now in the fleet's group, sorted."""
        return group_members(self._admin, self._names.group)

    def _poll(self, timeout_s: float) -> None:
        event = self._follower.poll(time.monotonic_ns() // 1_000, timeout_s)
        if isinstance(event, AccessDenied | ProgressReadLost):
            raise event.error
        if isinstance(event, ReadInterrupted) and self._follower.has_failed:
            raise ConsumerError(event.reason, topic=self._names.progress)

    def _not_read_to_its_end(self) -> UnreachableError:
        reported = self._follower.reported
        return not_read_to_end("the progress topic", topic=self._names.progress, reported=reported)

    def close(self) -> None:
        """Stop reading."""
        self._follower.close()


def read_fleet(config: ProducerConfig) -> FleetRecords:
    """Return all records of the newest epoch; raises as `FleetReader` does."""
    with closing(FleetReader(config)) as reader:
        return reader.read()
