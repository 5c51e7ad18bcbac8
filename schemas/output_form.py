"""The form of a stream's published changes, as far as the producer's settings decide it.

It is fixed when the stream begins: `StreamStarted.filters` names each setting that differs from the
default, and what the stream leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidegate.schemas.progress import PRODUCER_FILTER
from tidegate.schemas.topics import TEMPLATE_SETTING

_TOMBSTONES = f"{PRODUCER_FILTER}tombstones="
_ENVELOPE = f"{PRODUCER_FILTER}envelope="
_FORMAT = f"{PRODUCER_FILTER}value_format="
_KEY_FORMAT = f"{PRODUCER_FILTER}key_format="
_SETTINGS = (_TOMBSTONES, _ENVELOPE, _FORMAT, _KEY_FORMAT, f"{PRODUCER_FILTER}{TEMPLATE_SETTING}=")


class Envelope(StrEnum):
    """The structure of the values in data topics."""

    TIDEGATE = "tidegate"
    """A change with its row before and after."""
    FLAT = "flat"
    """A row, with the facts of its change in fields after its columns."""
    DEBEZIUM = "debezium"
    """The value of Debezium's connector for Spanner: before, after, source, op."""
    DATASTREAM = "datastream"
    """An event of Google's Datastream: metadata, and the row as its payload."""


class ValueFormat(StrEnum):
    """The encoding of values."""

    AVRO = "avro"
    """Framed, under a schema of the registry."""
    JSON = "json"
    """One JSON object as text, without a frame; possible for events of other products."""


class KeyFormat(StrEnum):
    """The encoding of keys."""

    AVRO = "avro"
    """Framed, under a schema of the registry."""
    JSON = "json"
    """One JSON object as text, without a frame; possible where values are Debezium's in JSON."""


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The records in data topics: their envelope and formats, and further records."""

    tombstones: bool = False
    """Whether each DELETE is followed by a record with its key and no value."""

    envelope: Envelope = Envelope.TIDEGATE

    value_format: ValueFormat = ValueFormat.AVRO

    key_format: KeyFormat = KeyFormat.AVRO

    @property
    def described(self) -> tuple[str, ...]:
        """Return the entries of `StreamStarted.filters` for this form; none for the defaults."""
        is_other = self.envelope is not Envelope.TIDEGATE
        is_json = self.value_format is ValueFormat.JSON
        return (
            (f"{_ENVELOPE}{self.envelope}",) * is_other
            + (f"{_TOMBSTONES}true",) * self.tombstones
            + (f"{_FORMAT}{self.value_format}",) * is_json
            + (f"{_KEY_FORMAT}{self.key_format}",) * (self.key_format is KeyFormat.JSON)
        )

    @classmethod
    def of(cls, filters: Iterable[str]) -> OutputForm:
        """Return the form that `StreamStarted.filters` names; unknown values are ignored.

        Readers find unknown values in `recorded_form`.
        """
        named = set(filters)
        envelope = next((e for e in Envelope if f"{_ENVELOPE}{e}" in named), Envelope.TIDEGATE)
        value_format = next((f for f in ValueFormat if f"{_FORMAT}{f}" in named), ValueFormat.AVRO)
        key_format = next((f for f in KeyFormat if f"{_KEY_FORMAT}{f}" in named), KeyFormat.AVRO)
        return cls(f"{_TOMBSTONES}true" in named, envelope, value_format, key_format)


def recorded_form(filters: Iterable[str]) -> Mapping[str, str]:
    """Return each setting of the form with its text in `StreamStarted.filters`.

    Values that this version does not know are included, so that workers can compare them.
    """
    settings = {
        "envelope": str(Envelope.TIDEGATE),
        "tombstones": "false",
        "value_format": str(ValueFormat.AVRO),
        "key_format": str(KeyFormat.AVRO),
    }
    for entry in filters:
        for name in settings:
            head = f"{PRODUCER_FILTER}{name}="
            if entry.startswith(head):
                settings[name] = entry.removeprefix(head)
    return settings


def left_out(filters: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of `StreamStarted.filters` for changes that the stream leaves out."""
    return tuple(entry for entry in filters if not entry.startswith(_SETTINGS))
