"""Topic names, subjects, headers and the slot of a stream partition.

A prefix names one change stream: `<prefix>-progress`, `<prefix>-dead-letter`, and for data
`<prefix>.<table>` or what the stream's template makes of prefix and table.

A template is a text with the placeholders `{prefix}` and `{table}`.  `{prefix}` comes first and a
separator follows it, so that the topics of two streams can collide only where one prefix continues
the other.  It contains `{table}` once, so that a topic names its table.  The producer's setting may
hold `{database}`, the database's id, which is resolved before a template is used.

Kafka's metrics write `.` as `_`: a broker refuses to create `p.shop_Items` while `p.shop.Items`
exists.  Topics of one stream that differ in case only would belong to one table, since Spanner
compares names without case, and in many outputs to one folder or table.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import PRODUCER_FILTER

TEMPLATE_SETTING = "topic_template"
"""The setting's name, in both programs and in `StreamStarted.filters`."""

TEMPLATE_DEFAULT = "{prefix}.{table}"

SEPARATORS = ".-_"
"""The separators: one of them follows the prefix."""

_DATABASE = "{database}"
_PREFIX_PART, _TABLE_PART = "{prefix}", "{table}"
_TEMPLATE_PARTS = (_PREFIX_PART, _DATABASE, _TABLE_PART)
_TEMPLATE_PART = re.compile(r"\{[^{}]*\}|[^{}]+|[{}]")
_LITERAL = re.compile(r"[A-Za-z0-9._-]+")
_LETTERS_HINT = "A topic's name has letters, digits, '.', '_' and '-'"


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """A template without `{database}`; created by `parse`."""

    middle: str
    """The text between prefix and table."""
    tail: str
    """The text after the table."""

    @classmethod
    def parse(cls, text: str, *, database: str = "") -> Self:
        """Return the template of a setting, with `{database}` replaced by the id of the database.

        Raises ConfigError for a text that is not a template.
        """
        parts = _TEMPLATE_PART.findall(text)
        for part in parts:
            if part.startswith("{") and part not in _TEMPLATE_PARTS:
                raise ConfigError(
                    f"{TEMPLATE_SETTING}: {part!r} is not one of {', '.join(_TEMPLATE_PARTS)}",
                    hint="Placeholders are written in lower case",
                )
            if part not in _TEMPLATE_PARTS and not _LITERAL.fullmatch(part):
                raise ConfigError(
                    f"{TEMPLATE_SETTING}: {part!r} cannot be part of a topic's name",
                    hint=_LETTERS_HINT,
                )
        _require_counts(text, parts)
        if _DATABASE in parts and not database:
            raise ConfigError(
                f"{TEMPLATE_SETTING}: {_DATABASE} is known to the producer only",
                hint="Write the database's id instead, as in {prefix}.my-database.{table}",
            )
        middle, tail = (
            text.removeprefix(_PREFIX_PART).replace(_DATABASE, database).split(_TABLE_PART)
        )
        if not middle.startswith(tuple(SEPARATORS)):
            raise ConfigError(
                f"{TEMPLATE_SETTING}: {text!r} has no separator after {{prefix}}",
                hint="Write '.', '-' or '_' after it",
            )
        return cls(middle, tail)

    @property
    def text(self) -> str:
        """The template as a setting has it."""
        return f"{_PREFIX_PART}{self.middle}{_TABLE_PART}{self.tail}"


def _require_counts(text: str, parts: list[str]) -> None:
    hint = f"The default is {TEMPLATE_DEFAULT}"
    if parts[:1] != [_PREFIX_PART] or parts.count(_PREFIX_PART) > 1:
        raise ConfigError(
            f"{TEMPLATE_SETTING}: {text!r} must begin with {{prefix}}, and have it once", hint=hint
        )
    if parts.count(_TABLE_PART) != 1:
        raise ConfigError(
            f"{TEMPLATE_SETTING}: {text!r} must have {{table}} once, or tables would share a topic",
            hint=hint,
        )
    if parts.count(_DATABASE) > 1:
        raise ConfigError(f"{TEMPLATE_SETTING}: {text!r} has {_DATABASE} more than once", hint=hint)


HEADER_ORDER = "order"
"""First header of every data record: its order key."""

HEADER_MOD = "mod"
"""Second header of every data record: I, U or D, readable without decoding the value."""

HEADER_ORIGIN = "origin"
"""Third header of every data record: a hash of the token of the record's stream partition."""

HEADERS_PARKED = (HEADER_ORDER, HEADER_MOD, "topic", "form", "reason", "error", "token")
"""The headers of every dead-letter record, in their order."""

HEADER_REDRIVEN = "redriven"
"""Fourth header of a data record that came back from the dead-letter topic."""

ROOT_TOKEN = ""
"""Token of the initial query, which has none: the empty string, whose slot is always 0."""

SLOTS_DEFAULT = 16

_PROGRESS, _DEAD_LETTER = "-progress", "-dead-letter"
_NOT_DATA = (_PROGRESS, _DEAD_LETTER)
"""Endings that no data topic may have: it could be another topic of this or another stream."""
_KEY, _VALUE = "-key", "-value"
_TABLE = r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?"
_BESIDE = "__backfill"
_TABLE_BEGIN = re.compile(r"([A-Za-z0-9_]+(\.[A-Za-z0-9_]*)?)?")
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_TOPIC_LENGTH_MAX = 249
_TEMPLATE = f"{PRODUCER_FILTER}{TEMPLATE_SETTING}="


def beside(table: str) -> str:
    """Return the name of a table for its rows that a backfill reads while the stream runs."""
    return f"{table}{_BESIDE}"


def table_of(name: str) -> str:
    """Return the table of a name: the name itself, or the argument of `beside`."""
    return name.removesuffix(_BESIDE)


def slot_of(partition_token: str, slots: int) -> int:
    """Return the slot that owns a stream partition: CRC-32 of the token's UTF-8, modulo `slots`."""
    return zlib.crc32(partition_token.encode()) % slots


@dataclass(frozen=True, slots=True)
class TopicNames:
    """All names that follow from a prefix and from the template of data topics.

    Raises ConfigError for a prefix that Kafka rejects, and for a template that does not distinguish
    tables and streams.  `template` no longer contains `{database}`.
    """

    prefix: str
    template: str = TEMPLATE_DEFAULT
    _head: str = field(init=False, repr=False, compare=False)
    """The text before the table in a data topic's name."""
    _tail: str = field(init=False, repr=False, compare=False)
    """The text after the table."""
    _not_tables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Tables whose topic would end like a progress or dead-letter topic."""
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the prefix and the template."""
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                f"prefix {self.prefix!r} cannot begin a topic name",
                hint=(
                    "Use at most 100 letters, digits, '.', '_' and '-'; the first is not '.' or '-'"
                ),
            )
        parsed = TopicTemplate.parse(self.template)
        object.__setattr__(self, "_head", self.prefix + parsed.middle)
        object.__setattr__(self, "_tail", parsed.tail)
        if self._tail.endswith(_NOT_DATA):
            raise ConfigError(
                f"{TEMPLATE_SETTING}: {self.template!r} ends like the name of another topic",
                hint="Let it end in another text than -progress or -dead-letter",
            )
        if len(self._head) + len(self._tail) >= _TOPIC_LENGTH_MAX:
            raise ConfigError(
                f"{TEMPLATE_SETTING}: {self.template!r} leaves no room for a table",
                hint=f"A topic's name has at most {_TOPIC_LENGTH_MAX} characters",
            )
        object.__setattr__(self, "_not_tables", tuple(self._find_not_tables()))
        others, tail = "|".join(self._not_tables), re.escape(self._tail)
        not_data = f"(?!({others}){tail}$)" if others else ""
        pattern = f"{re.escape(self._head)}{not_data}{_TABLE}{tail}"
        object.__setattr__(self, "_pattern", re.compile(pattern))

    @property
    def progress(self) -> str:
        """Lineage, heartbeats and completion markers; its topic partitions are the slots."""
        return f"{self.prefix}{_PROGRESS}"

    @property
    def dead_letter(self) -> str:
        """Changes that could not be published, and later changes of their keys."""
        return f"{self.prefix}{_DEAD_LETTER}"

    @property
    def backfills(self) -> str:
        """Requests for backfills while the stream runs; with few templates a data topic's name."""
        return f"{self.prefix}-backfill-requests"

    @property
    def group(self) -> str:
        """The consumer group whose generation fences the fleet's transactions."""
        return f"{self.prefix}-fleet"

    @property
    def recorded(self) -> tuple[str, ...]:
        """Return the entries of `StreamStarted.filters` for the template; none for the default."""
        return () if self.template == TEMPLATE_DEFAULT else (f"{_TEMPLATE}{self.template}",)

    @staticmethod
    def recorded_template(filters: Iterable[str]) -> str:
        """Return the template of a stream, from its `StreamStarted.filters`."""
        templates = [
            entry.removeprefix(_TEMPLATE) for entry in filters if entry.startswith(_TEMPLATE)
        ]
        return templates[0] if templates else TEMPLATE_DEFAULT

    def require_recorded(self, filters: Iterable[str]) -> None:
        """Raise ConfigError for a stream with another template: its topics have other names."""
        recorded = self.recorded_template(filters)
        if recorded != self.template:
            raise ConfigError(
                (
                    f"{TEMPLATE_SETTING}: the stream was begun with {recorded!r}, the setting is "
                    f"{self.template!r}"
                ),
                hint=f'Set {TEMPLATE_SETTING} = "{recorded}"',
                prefix=self.prefix,
            )

    def data(self, table: str) -> str:
        """Return the topic of a table, named as Spanner does: `name` or `schema.name`.

        Raises ConfigError for a table that cannot have a topic under this template.
        """
        topic = f"{self._head}{table}{self._tail}"
        if table in self._not_tables:
            raise ConfigError(
                f"table {table}: its topic {topic} would be named like another kind",
                hint=f"Use another {TEMPLATE_SETTING} than {self.template}, or leave the table out",
            )
        if len(topic) > _TOPIC_LENGTH_MAX:
            raise ConfigError(
                (
                    f"table {table}: its topic's name has {len(topic)} characters, and Kafka "
                    f"allows {_TOPIC_LENGTH_MAX}"
                ),
                hint=f"Use a shorter prefix or {TEMPLATE_SETTING}, or leave the table out",
                topic=topic,
            )
        return topic

    @property
    def data_pattern(self) -> str:
        """Regular expression, for Python and Java, for the complete name of every data topic."""
        return self._pattern.pattern

    def is_data(self, topic: str) -> bool:
        """Whether a topic is a data topic of this stream."""
        return self._pattern.fullmatch(topic) is not None

    def table(self, topic: str) -> str | None:
        """Return the table of a data topic, or None if the topic does not belong to this stream."""
        if not self.is_data(topic):
            return None
        return topic[len(self._head) : len(topic) - len(self._tail)]

    def is_unclear(self, topic: str) -> bool:
        """Whether a topic looks like a topic of this stream, but is not."""
        starts = (self._head, *(f"{self.prefix}{separator}" for separator in SEPARATORS))
        own = (self.progress, self.dead_letter, self.backfills)
        return topic.startswith(starts) and topic not in own and not self.is_data(topic)

    def overlapping(self, topics: Iterable[str]) -> list[str]:
        """Return the progress topics of streams whose data topics could be read as this one's.

        Where one prefix continues the other after a dot (`orders` and `orders.eu`), the topic
        `orders.eu.items` could belong to both streams; with the template `{prefix}-{table}` so
        could `orders-eu.items`, of `orders-eu`.  The template of the other stream does not matter.
        """
        return sorted(
            topic
            for topic in topics
            if (other := topic.removesuffix(_PROGRESS)) != topic and self._overlaps(other)
        )

    def continued(self, topics: Iterable[str]) -> list[str]:
        """Return the progress topics of streams whose prefix this one continues after `-` or `_`.

        Whether they match data topics of this stream depends on *their* template.
        """
        return sorted(
            topic
            for topic in topics
            if (other := topic.removesuffix(_PROGRESS)) != topic
            and self.prefix.startswith((f"{other}-", f"{other}_"))
        )

    @staticmethod
    def progress_prefix(topic: str) -> str:
        """Return the prefix of the stream that a progress topic belongs to."""
        return topic.removesuffix(_PROGRESS)

    def _overlaps(self, other: str) -> bool:
        if other == self.prefix:
            return False
        if f"{other}.".startswith(f"{self.prefix}.") or self.prefix.startswith(f"{other}."):
            return True
        is_longer = other.startswith(self.prefix)
        return is_longer and any(self._may_begin(f"{other}{separator}") for separator in SEPARATORS)

    def _may_begin(self, start: str) -> bool:
        """Whether the name of a data topic may begin with a text and continue after it."""
        if self._head.startswith(start):
            return True
        if not start.startswith(self._head):
            return False
        rest = start.removeprefix(self._head)
        if _TABLE_BEGIN.fullmatch(rest):
            return True
        return any(
            rest.endswith(self._tail[:length]) and re.fullmatch(_TABLE, rest[:-length])
            for length in range(1, len(self._tail))
        )

    def _find_not_tables(self) -> Iterator[str]:
        for end in _NOT_DATA:
            if not end.endswith(self._tail):
                continue
            rest = end.removesuffix(self._tail)
            for start in range(1, len(rest)):
                table = rest[start:]
                if self._head.endswith(rest[:start]) and re.fullmatch(_TABLE, table):
                    yield table

    def has_schemas(self, topic: str) -> bool:
        """Whether a topic belongs to this stream and its keys and values have subjects."""
        return topic == self.progress or self.is_data(topic)

    def is_subject(self, subject: str) -> bool:
        """Whether a subject of the registry belongs to a topic of this stream."""
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


def topic_collisions(wanted: Iterable[str], existing: Iterable[str]) -> dict[str, str]:
    """Return the wanted topics that Kafka would not create, each with the colliding topic.

    That may be an earlier wanted topic.  Existing topics are not created.
    """
    return _in_the_way(wanted, existing, _in_metrics)


def topics_of_one_name(wanted: Iterable[str], existing: Iterable[str]) -> dict[str, str]:
    """Return the wanted topics that differ only in case from another topic, with that topic."""
    return _in_the_way(wanted, existing, str.lower)


def _in_the_way(
    wanted: Iterable[str], existing: Iterable[str], as_one: Callable[[str], str]
) -> dict[str, str]:
    present = frozenset(existing)
    topics_by_name = {as_one(topic): topic for topic in sorted(present)}
    collisions: dict[str, str] = {}
    for topic in wanted:
        other = topic if topic in present else topics_by_name.setdefault(as_one(topic), topic)
        if other != topic:
            collisions[topic] = other
    return collisions


def _in_metrics(topic: str) -> str:
    return topic.replace(".", "_")
