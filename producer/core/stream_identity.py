"""The properties that every worker of a fleet must share throughout an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.producer.errors import StreamChangedError
from tidegate.schemas.output_form import left_out, recorded_form
from tidegate.schemas.progress import (
    PRODUCER_FILTER,
    ChildPartition,
    DataTopic,
    StreamStarted,
    TimestampForm,
)
from tidegate.schemas.topics import TEMPLATE_SETTING, TopicNames


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """The stream, its group and its topics at present; recorded in `StreamStarted`."""

    stream: str
    dialect: str
    group: str
    slots: int
    progress_topic_id: str
    topics: tuple[DataTopic, ...]
    filters: tuple[str, ...] = ()
    """The options that leave changes out, and the settings of the output, such as the template of
    data topics' names.  Options of the change stream are not compared: it may be altered."""
    timestamps: TimestampForm = TimestampForm.MICROS

    def started(
        self, *, start_ns: int, end_ns: int | None, children: tuple[ChildPartition, ...]
    ) -> StreamStarted:
        """Return the record that opens an epoch of this stream."""
        return StreamStarted(
            stream=self.stream,
            dialect=self.dialect,
            start_ns=start_ns,
            end_ns=end_ns,
            group=self.group,
            slots=self.slots,
            progress_topic_id=self.progress_topic_id,
            topics=self.topics,
            children=children,
            filters=self.filters,
            timestamps=self.timestamps,
        )

    def require(self, recorded: StreamStarted) -> None:
        """Raise StreamChangedError, naming every difference, unless the topics are this stream's.

        A topic that was re-created, that grew, or whose key schema has another id would move keys
        between topic partitions.  `core.stream_topics` compares the topics of later tables.
        """
        names = ("stream", "dialect", "group", "slots", "progress_topic_id", "timestamps")
        differences = _differences(recorded, {name: getattr(self, name) for name in names})
        differences += _filter_differences(recorded, self.filters)
        current = {topic.topic: topic for topic in self.topics}
        differences += [
            f"topic: recorded {topic}, now {current[topic.topic]}"
            for topic in recorded.topics
            if current.get(topic.topic, topic) != topic
        ]
        if differences:
            raise StreamChangedError(differences)


def require_settings(
    recorded: StreamStarted,
    *,
    stream: str,
    timestamps: TimestampForm,
    filters: tuple[str, ...] = (),
) -> None:
    """Raise StreamChangedError unless the settings are the recorded ones; topics may follow."""
    differences = _differences(recorded, {"stream": stream, "timestamps": timestamps})
    differences += _filter_differences(recorded, filters)
    if differences:
        raise StreamChangedError(differences)


def _differences(recorded: StreamStarted, current: Mapping[str, object]) -> list[str]:
    return [
        f"{name}: recorded {_shown(getattr(recorded, name))}, now {_shown(value)}"
        for name, value in current.items()
        if getattr(recorded, name) != value
    ]


def _filter_differences(recorded: StreamStarted, filters: tuple[str, ...]) -> list[str]:
    """Compare the entries of `filters` from the producer's settings."""
    was, is_now = _settings(recorded.filters), _settings(filters)
    before, now = _producer_filters(recorded.filters), _producer_filters(filters)
    return (
        [
            f"{name}: recorded {was[name]!r}, now {value!r}"
            for name, value in is_now.items()
            if was[name] != value
        ]
        + [f"filter: recorded {entry}, now without it" for entry in sorted(before - now)]
        + [f"filter: recorded without {entry}, now with it" for entry in sorted(now - before)]
    )


def _settings(filters: tuple[str, ...]) -> dict[str, str]:
    """Return the settings that leave nothing out, with their values in `filters`."""
    return {TEMPLATE_SETTING: TopicNames.recorded_template(filters), **recorded_form(filters)}


def _producer_filters(filters: tuple[str, ...]) -> set[str]:
    return {
        entry.removeprefix(PRODUCER_FILTER)
        for entry in left_out(filters)
        if entry.startswith(PRODUCER_FILTER)
    }


def _shown(value: object) -> str:
    """Return a value in the form of the settings."""
    return repr(value.lower() if isinstance(value, TimestampForm) else value)
