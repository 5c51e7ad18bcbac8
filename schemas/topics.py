"""Topic names, subjects, headers and the slot of a stream partition.

A prefix names one change stream: `<prefix>.<table>` for data, `<prefix>-progress`,
`<prefix>-dead-letter`.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "HEADERS_PARKED",
    "HEADER_MOD",
    "HEADER_ORDER",
    "HEADER_ORIGIN",
    "HEADER_REDRIVEN",
    "ROOT_TOKEN",
    "SLOTS_DEFAULT",
    "TopicNames",
    "slot_of",
]

HEADER_ORDER = "order"
"""First header of every data record: its order key."""

HEADER_MOD = "mod"
"""Second header of every data record: I, U or D, so that it is known without decoding the value."""

HEADER_ORIGIN = "origin"
"""Third header of every data record: a hash of the token of the stream partition it comes from."""

HEADERS_PARKED = (HEADER_ORDER, HEADER_MOD, "topic", "form", "reason", "error", "token")
"""The headers of every dead-letter record, in their order."""

HEADER_REDRIVEN = "redriven"
"""Fourth header of a data record that came back from the dead-letter topic."""

ROOT_TOKEN = ""
"""The initial query has no token; its slot is that of the empty string: 0, of any number."""

SLOTS_DEFAULT = 16

_PROGRESS = "-progress"
_KEY, _VALUE = "-key", "-value"
_TABLE = r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?"
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def slot_of(partition_token: str, slots: int) -> int:
    """Return the slot that owns a stream partition: CRC-32 of the token's UTF-8, modulo `slots`."""
    return zlib.crc32(partition_token.encode()) % slots


@dataclass(frozen=True, slots=True)
class TopicNames:
    """All names that follow from a prefix; raises ConfigError for a prefix that Kafka refuses."""

    prefix: str

    def __post_init__(self) -> None:
        """Check the prefix."""
        if not _PREFIX.fullmatch(self.prefix):
            message = f"prefix {self.prefix!r} cannot begin a topic name"
            hint = "Use at most 100 letters, digits, '.', '_' and '-'; the first is not '.' or '-'"
            raise ConfigError(message, hint=hint)

    @property
    def progress(self) -> str:
        """Lineage, heartbeats and completion markers; its topic partitions are the slots."""
        return f"{self.prefix}{_PROGRESS}"

    @property
    def dead_letter(self) -> str:
        """Changes that could not be published, and those of their keys that came after them."""
        return f"{self.prefix}-dead-letter"

    @property
    def group(self) -> str:
        """The consumer group whose generation fences the fleet's transactions."""
        return f"{self.prefix}-fleet"

    def data(self, table: str) -> str:
        """Return the topic of a table, named as Spanner does: `name` or `schema.name`."""
        return f"{self.prefix}.{table}"

    @property
    def data_pattern(self) -> str:
        """Regular expression, for Python and Java alike, of the whole name of every data topic."""
        return re.escape(f"{self.prefix}.") + _TABLE

    def is_data(self, topic: str) -> bool:
        """Whether a topic is one of a table of this stream."""
        return re.fullmatch(self.data_pattern, topic) is not None

    def table(self, topic: str) -> str | None:
        """Return the table of a data topic, or None if the topic is not one of this prefix."""
        head = f"{self.prefix}."
        return topic[len(head) :] if topic.startswith(head) else None

    def overlapping(self, topics: Iterable[str]) -> list[str]:
        """Return the progress topics of streams whose data topics could be taken for this one's.

        Of two prefixes, one of which continues the other after a dot (`orders` and `orders.eu`),
        the topic `orders.eu.items` would belong to both streams.
        """
        return sorted(
            topic
            for topic in topics
            if (other := topic.removesuffix(_PROGRESS)) != topic
            and (f"{other}.".startswith(f"{self.prefix}.") or self.prefix.startswith(f"{other}."))
            and other != self.prefix
        )

    def has_schemas(self, topic: str) -> bool:
        """Whether a topic is one of this stream whose keys and values have subjects."""
        return topic == self.progress or self.is_data(topic)

    def is_subject(self, subject: str) -> bool:
        """Whether a subject of the registry is one of this stream's topics."""
        ends = [end for end in (_KEY, _VALUE) if subject.endswith(end)]
        return any(self.has_schemas(subject.removesuffix(end)) for end in ends)

    @staticmethod
    def key_subject(topic: str) -> str:
        """Return the registry's subject for the keys of a topic."""
        return f"{topic}{_KEY}"

    @staticmethod
    def value_subject(topic: str) -> str:
        """Return the registry's subject for the values of a topic."""
        return f"{topic}{_VALUE}"
