"""A translator that reads a table's schema again when a record shows something unknown.

The catalogue's columns, the known ones and those that the record shows make the table's new schema
version, which is registered before the record is translated again.  Each record gets one such
retry; a record that the new schema cannot represent either is an error, never left out.

A table itself may be unknown: it was created, or the stream began to watch it, after this process
started; or it was dropped before, and has records left.  Its topic is made as at a start.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from tidegate.producer.errors import IncompatibleChange, TableChanged
from tidegate.producer.translation.table_evolution import evolve
from tidegate.schemas.errors import SchemaError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tidegate.producer.messages import PublishableRecord
    from tidegate.producer.ports import Catalogue, DataTopics
    from tidegate.producer.records import DataChangeRecord
    from tidegate.producer.translation.table_registrar import TableRegistrar
    from tidegate.producer.translation.translator import TableEncoding, Translator

__all__ = ["RefreshingTranslator"]

_log = structlog.get_logger()


class RefreshingTranslator:
    """Translates records and follows changes of their tables; port: `ports.RecordTranslator`."""

    def __init__(
        self,
        translator: Translator,
        catalogue: Catalogue,
        registrar: TableRegistrar,
        topics: DataTopics,
        *,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Share the parts with all readers; `lock` is held while a table is refreshed."""
        self._translator = translator
        self._catalogue = catalogue
        self._registrar = registrar
        self._topics = topics
        self._lock = lock or threading.Lock()

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return as `translate` does; None if the record's table has to be refreshed."""
        try:
            return self._translator.translate(record, token=token)
        except TableChanged:
            return None

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages; blocks while its table is refreshed.

        Raises SchemaError for a value that its column's type cannot represent, IncompatibleChange
        for a table that changed in a way its topic's schemas cannot follow, ConfigError if the
        topic of a new table cannot be created, QueryError or UnreachableError if catalogue,
        registry or Kafka do not answer.
        """
        with suppress(TableChanged):
            return self._translator.translate(record, token=token)
        with self._lock:
            # Another thread may have met the same change, or another one, and refreshed the table.
            with suppress(TableChanged):
                return self._translator.translate(record, token=token)
            self._translator.replace(self._refreshed(record))
            try:
                return self._translator.translate(record, token=token)
            except TableChanged as error:
                raise IncompatibleChange(
                    error.message,
                    hint="Its schema cannot follow; start a new stream under another prefix",
                    **error.fields,
                ) from error

    def _refreshed(self, record: DataChangeRecord) -> TableEncoding:
        name = record.table_name
        known = self._translator.encoding(name)
        current = self._catalogue.table(name, stream=self._translator.change_stream)
        if known is not None:
            table = evolve(known.table, current, record.columns, table=name)
            return self._registrar.register(table)
        key_names = () if current is not None else self._registrar.key_names(name)
        table = evolve(None, current, record.columns, table=name, key_names=key_names)
        try:
            encoding = self._registrar.register(table)
        except (SchemaError, IncompatibleChange):
            # Its changes can be parked if their keys can be written as those of later ones will be.
            with suppress(SchemaError, IncompatibleChange):
                self._translator.know_keys(self._registrar.register_key(table))
            raise
        self._topics.ensure(encoding.topic, key_schema_id=encoding.key.schema_id)
        _log.info("new table", table=name, topic=encoding.topic)
        return encoding
