"""A translator that learns: a record with an unknown column makes it look at the catalogue again.

Shared by all reader threads.  Each record gets one second try; a record that the refreshed schema
cannot tell either is an error, never left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidegate.producer.core.translate import TableEncoding, Translator
from tidegate.producer.errors import IncompatibleChange, TableChanged
from tidegate.producer.spanner_records import DataChangeRecord

if TYPE_CHECKING:
    from tidegate.producer.messages import PublishableRecord

__all__ = ["LearningTranslator", "TableRefresh"]

TableRefresh: TypeAlias = Callable[[DataChangeRecord, TableEncoding | None], TableEncoding]
"""Looks a record's table up again, registers its new version, and returns the new encoding.

Given the record and what was known of its table; may block; raises what its adapters raise.
"""


class LearningTranslator:
    """A `Translator`, and what to do when it does not know a table, a column or a type."""

    def __init__(self, translator: Translator, refresh: TableRefresh) -> None:
        self._translator = translator
        self._refresh = refresh
        self._lock = threading.Lock()

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages; blocks while a table is looked up again.

        Raises SchemaError for a value that cannot be told, IncompatibleChange for a table that
        changed in a way its topic's schema cannot follow, and what the look-up raises.
        """
        known = self._translator.encoding(record.table_name)
        try:
            return self._translator.translate(record, token=token)
        except TableChanged:
            with self._lock:
                # Another thread may have met the same change and looked it up meanwhile.
                if self._translator.encoding(record.table_name) is known:
                    self._translator.replace(self._refresh(record, known))
        try:
            return self._translator.translate(record, token=token)
        except TableChanged as error:
            raise IncompatibleChange(
                error.message,
                hint="The topic's schema cannot follow; begin a new stream under another prefix",
                **error.fields,
            ) from error
