"""The properties of a stream in the settings, and checks that they match the stream."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.backfill.read_partition import is_of_backfill
from tidegate.producer.config import ProducerConfig
from tidegate.producer.description import StreamDescription
from tidegate.producer.record_filter import MOD_TYPES, RecordFilter
from tidegate.producer.source_config import listed
from tidegate.schemas.change_schema import RESERVED_HINT, reserved_names
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.output_form import Envelope, KeyFormat, OutputForm, ValueFormat
from tidegate.schemas.progress import ProgressRecord, StreamStarted


def filter_of(config: ProducerConfig) -> RecordFilter:
    """Return the filter of the settings."""
    chosen = {kind.upper() for kind in listed(config.mod_types)}
    return RecordFilter(
        tables=listed(config.tables),
        tables_left_out=listed(config.tables_left_out),
        columns_left_out=listed(config.columns_left_out),
        mod_types=tuple(kind for kind in MOD_TYPES if kind in chosen),
        tags_left_out=listed(config.tags_left_out, separator=";"),
        system_transactions_left_out=config.system_transactions_left_out,
    )


def form_of_output(config: ProducerConfig) -> OutputForm:
    """Return the form in which the settings publish changes."""
    return OutputForm(
        tombstones=config.tombstones,
        envelope=Envelope(config.envelope),
        value_format=ValueFormat(config.value_format),
        key_format=KeyFormat(config.key_format),
    )


def fixed_settings(config: ProducerConfig) -> tuple[str, ...]:
    """Return the settings that are fixed for an epoch, as entries of `StreamStarted.filters`."""
    of_output = form_of_output(config).described + config.topic_names.recorded
    return filter_of(config).described + of_output


def require_mode(
    config: ProducerConfig, description: StreamDescription, *, has_dead_letter: bool
) -> None:
    """Raise ConfigError for settings that do not allow keys to move.

    A key that moves would lose its parked changes: a marker does not name parked keys.
    """
    if not description.has_key_moves:
        return
    if config.poison == "park":
        raise ConfigError(
            f"poison: park is not possible with partition_mode {description.partition_mode}",
            hint='Use poison = "stop"',
        )
    if has_dead_letter:
        raise ConfigError(
            f"prefix: {config.prefix} has a dead-letter topic",
            hint=(
                f"With partition_mode {description.partition_mode} nothing is parked: use another "
                "prefix, or delete the topic"
            ),
        )


def backfill_tables(config: ProducerConfig, published: Iterable[str]) -> tuple[str, ...]:
    """Return the tables whose rows the settings publish before the stream.

    `published` are the stream's tables.  Raises ConfigError for another table.
    """
    tables = sorted(published)
    selected = listed(config.backfill)
    if selected == ("*",):
        return tuple(tables)
    for table in selected:
        if table not in tables:
            raise ConfigError(
                f"backfill: the stream does not publish the table {table}",
                hint=f"Published tables: {', '.join(tables) or 'none'}",
            )
    return selected


def require_backfill(config: ProducerConfig, recorded: ProgressRecord) -> None:
    """Raise ConfigError for a backfill of a stream that has begun without one."""
    body = recorded.body
    if not config.backfill or not isinstance(body, StreamStarted):
        return
    if not any(is_of_backfill(child.token) for child in body.children):
        raise ConfigError(
            "backfill: the stream has begun without a backfill",
            hint="Leave the setting out, or begin a new stream (another prefix, or reset)",
            prefix=config.prefix,
        )


def require_names(config: ProducerConfig, description: StreamDescription) -> None:
    """Raise ConfigError for a column whose name the setting `envelope` does not allow."""
    if form_of_output(config).envelope is not Envelope.FLAT:
        return
    for table in description.tables:
        for name in reserved_names(column.name for column in table.columns):
            raise ConfigError(
                (
                    f"envelope: a flat value cannot have the column {table.name}.{name}, whose "
                    "name begins with __"
                ),
                hint=RESERVED_HINT,
            )
