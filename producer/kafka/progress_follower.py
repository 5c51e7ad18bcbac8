"""Reads all slots of a progress topic from their beginnings, for the view of the whole fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidegate.producer.core.events import (
    AccessDenied,
    FleetRead,
    ProgressReadLost,
    ReadInterrupted,
)
from tidegate.producer.core.fleet import FleetProgress
from tidegate.producer.errors import ProgressLost
from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.producer.kafka.slots import HeldMessages, SlotEnds
from tidegate.program.kafka_clients import admin_config, consume_from_beginning
from tidegate.program.kafka_errors import AT_END, OUT_OF_RANGE, is_denied
from tidegate.schemas.errors import ConsumerError, SchemaError
from tidegate.schemas.progress import ProgressRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from tidegate.schemas.progress_decoder import ProgressDecoder


_BATCH_MAX = 200
"""Records of one poll: decoding them blocks the caller's loop for some milliseconds."""


class ProgressFollower:
    """Follows one epoch of a progress topic; for one thread."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        topic: str,
        slots: int,
        epoch: str,
        with_moves: bool = False,
        decoder: ProgressDecoder,
        options: Mapping[str, Any] | None = None,
        on_record: Callable[[ProgressRecord], None] | None = None,
    ) -> None:
        """Start reading; `group` only names the client.

        `on_record` is called with each record, of any epoch.
        """
        self._on_record = on_record
        self.progress = FleetProgress(epoch=epoch, topic=topic, slots=slots, with_moves=with_moves)
        self._topic = topic
        self._decoder = decoder
        self.has_failed = False
        """Whether reading has ended with the error that `poll` returned."""
        self.reported: KafkaError | None = None
        """The client's last error since it read a record or reached an end."""
        self._held = HeldMessages()
        self._interruption: ReadInterrupted | None = None
        """An interruption that was not returned yet."""
        admin = SharedAdmin(admin_config(bootstrap_servers, options))
        self._ends = SlotEnds(admin, topic=topic, slots=slots)
        self._consumer = consume_from_beginning(
            topic,
            range(slots),
            bootstrap_servers=bootstrap_servers,
            client_group=f"{group}-follower",
            options=options,
        )

    def poll(
        self, now_us: int, timeout_s: float = 0.0
    ) -> FleetRead | AccessDenied | ProgressReadLost | ReadInterrupted | None:
        """Return the records read since the last call, if they contain anything new.

        Waits for at most about `timeout_s`.  A record that contradicts the protocol, or cannot be
        decoded, ends the reading: it is returned once as `ReadInterrupted`.  So does a slot that
        lacks the next offset, as `ProgressReadLost`.  Any other error is returned after the records
        read with it, as `ReadInterrupted` without `has_failed`; the client continues by itself.
        Records wait while the decoder does not know their schema.  Raises UnreachableError if the
        schema of a record cannot be found out.
        """
        if self.has_failed:
            return None
        try:
            for message in self._held.take(
                lambda: self._consumer.consume(_BATCH_MAX, timeout_s), self._is_ready
            ):
                denied = self._take(message)
                if denied is not None:
                    return denied
            if self.progress.wants_ends(now_us):
                ends = self._ends.poll(now_us)
                if ends is not None:
                    self.progress.note_ends(ends, now_us)
            return self.progress.report() or self._interrupted()
        except ProgressLost as error:
            self.has_failed = True
            return ProgressReadLost(error)
        except (ConsumerError, SchemaError) as error:
            self.has_failed = True
            return ReadInterrupted(f"topic {self._topic}", str(error))

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _interrupted(self) -> ReadInterrupted | None:
        interruption, self._interruption = self._interruption, None
        return interruption

    def _is_ready(self, message: Message) -> bool:
        value = None if message.error() is not None else message.value()
        return value is None or self._decoder.is_ready(value)

    def _take(self, message: Message) -> AccessDenied | None:
        error, slot, offset = message.error(), message.partition(), message.offset()
        self.reported = None if error is None or error.code() == AT_END else error
        if error is not None and is_denied(error):
            return AccessDenied(f"topic {self._topic}", error.str())
        if error is not None and slot is not None and error.code() in OUT_OF_RANGE:
            raise ProgressLost(
                "the offset that a slot is read from is not in its log",
                slot=slot,
                position=self.progress.reached(slot),
                reason=error.str(),
            )
        if error is not None and error.code() != AT_END:
            self._interruption = ReadInterrupted(f"all slots of topic {self._topic}", error.str())
            return None
        if slot is None or offset is None:
            return None
        if error is None:
            value = message.value()
            record = None if value is None else self._decoder.decode(value)
            self.progress.add(slot, offset, record)
            if record is not None and self._on_record is not None:
                self._on_record(record)
        else:
            self.progress.reach_end(slot, offset)
        return None
