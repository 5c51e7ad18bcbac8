"""Refreshes a table whose records show something unknown: reads and registers its schema again.

The catalogue's columns, the known ones and those that the record shows make the table's new schema
version, which is registered before the record is translated again.  Each record gets one such
retry; a record that the new schema cannot represent either is an error, never left out.

The table itself may be unknown: it was created, or the stream began to watch it, after this process
started; or it was dropped earlier and has records left.  Its topic is created as at a start.  A
refused table is looked up again after some seconds, and not for each of its changes, because all
readers wait for the thread that looks it up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, suppress
from typing import Generic, TypeAlias, TypeVar

import structlog

from tidegate.producer.errors import IncompatibleChange, TableChanged, TopicRefused
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.ports import Catalogue, DataTopics
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.table_evolution import evolve
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.errors import SchemaError

ANSWER_HOLDS_US = 5_000_000
"""How long a fix by an operator may stay unnoticed."""

_ANSWERS_MAX = 1_024
_NS_PER_US = 1_000
_Answer = TypeVar("_Answer")
_Refusal: TypeAlias = SchemaError | IncompatibleChange | TopicRefused

_log = structlog.get_logger()


def monotonic_us() -> int:
    """Return the microseconds of the system's monotonic clock."""
    return time.monotonic_ns() // _NS_PER_US


class FreshAnswers(Generic[_Answer]):
    """Answers of Kafka, the catalogue or the registry, each kept for some seconds; thread-safe."""

    def __init__(self, clock_us: Callable[[], int] = monotonic_us) -> None:
        """`clock_us` is a monotonic clock, in microseconds."""
        self._clock_us = clock_us
        self._lock = threading.Lock()
        self._answers: dict[Hashable, tuple[int, _Answer]] = {}

    def get(self, question: Hashable) -> _Answer | None:
        """Return an answer of the last few seconds; None if there is none."""
        answered = self._answers.get(question)
        if answered is None or self._clock_us() - answered[0] >= ANSWER_HOLDS_US:
            return None
        return answered[1]

    def add(self, question: Hashable, answer: _Answer) -> None:
        """Keep a new answer; beyond `_ANSWERS_MAX` the oldest are dropped."""
        with self._lock:
            self._answers.pop(question, None)
            while len(self._answers) >= _ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = self._clock_us(), answer


class TableRefresher:
    """Translates records and follows the changes of their tables; thread-safe."""

    def __init__(
        self,
        translator: Translator,
        catalogue: Catalogue,
        registrar: TableRegistrar,
        topics: DataTopics,
        *,
        lock: AbstractContextManager[object] | None = None,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> None:
        """`lock` is held while a table is refreshed; `clock_us` is a monotonic clock."""
        self._translator = translator
        self._catalogue = catalogue
        self._registrar = registrar
        self._topics = topics
        self._lock = lock or threading.Lock()
        self._refusals: FreshAnswers[_Refusal] = FreshAnswers(clock_us)

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages; blocks while its table is refreshed.

        Raises SchemaError for a value that its column's type cannot represent, IncompatibleChange
        for a table that changed in a way its topic's schemas cannot follow, TopicRefused if the
        topic of a new table cannot be created, QueryError or UnreachableError if catalogue,
        registry or Kafka do not answer.  A table that was refused in the last few seconds is
        refused again without a look-up, if the record shows the same columns.
        """
        try:
            return self._translator.translate(record, token=token)
        except TableChanged as change:
            self._raise_if_refused(record, change)
        with self._lock:
            # Another thread may have met this change, or another one, and refreshed the table.
            try:
                return self._translator.translate(record, token=token)
            except TableChanged as change:
                self._raise_if_refused(record, change)
                question = _question(record, change)
            try:
                self._translator.replace(self._refreshed(record))
            except (SchemaError, IncompatibleChange, TopicRefused) as error:
                self._refusals.add(question, error)
                raise
            try:
                return self._translator.translate(record, token=token)
            except TableChanged as error:
                refusal = IncompatibleChange(
                    error.message,
                    hint=(
                        "Its schema cannot follow: undo the change, "
                        "or start a new stream under another prefix"
                    ),
                    **error.fields,
                )
                self._refusals.add(_question(record, error), refusal)
                raise refusal from error

    def _raise_if_refused(self, record: DataChangeRecord, change: TableChanged) -> None:
        """Raise the refusal of the table from the last few seconds, if there is one."""
        refusal = self._refusals.get(_question(record, change))
        if refusal is not None:
            raise type(refusal)(
                refusal.message, hint=refusal.hint, **refusal.fields
            ) from change  # a copy: several threads would add to its traceback

    def _refreshed(self, record: DataChangeRecord) -> TableEncoding:
        name, shown = record.table_name, {column.name for column in record.columns}
        former = self._translator.encoding(name)
        current = self._catalogue.table(name, stream=self._translator.change_stream)
        if former is not None:
            table = evolve(former.table, current, record.columns, table=name)
            return self._registrar.register(table, shown=shown)
        key_names = () if current is not None else self._registrar.key_names(name)
        table = evolve(None, current, record.columns, table=name, key_names=key_names)
        try:
            encoding = self._registrar.register(table, shown=shown)
        except (SchemaError, IncompatibleChange):
            # Its changes can be parked if their keys can be written as later keys will be.
            with suppress(SchemaError, IncompatibleChange):
                self._translator.know_keys(self._registrar.register_key(table))
            raise
        try:
            self._topics.ensure(encoding.topic, key_schema_id=encoding.key.schema_id)
        except TopicRefused:
            self._translator.know_keys(encoding)
            raise
        _log.info("new table", table=name, topic=encoding.topic)
        return encoding


def _question(record: DataChangeRecord, change: TableChanged) -> tuple[object, ...]:
    """Return the facts that a refusal depends on: the columns shown, and the first new one.

    Only the values may name the new column: then it adds to the columns.
    """
    return record.table_name, record.columns, change.fields.get("column")
