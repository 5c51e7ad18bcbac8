"""Writes everything that happens on a host to its data directory, as it happens.

A commit is in its journal before its caller gets an answer.  After the first write that fails,
`on_failure` is called and every later call fails too, because a step that cannot be stored must not
be acknowledged.  Without a directory nothing is stored and nothing can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from spanner_simulator.core.database import Database
from spanner_simulator.core.journal import JournalEntry, entry_to_plain
from spanner_simulator.server.keeping.data_directory import DataDirectory
from spanner_simulator.server.keeping.journal_file import JournalFile


class Keeper:
    """Stores the databases of one host; its methods raise OSError if a write fails."""

    def __init__(self, directory: DataDirectory | None) -> None:
        self.directory = directory
        self.failure: OSError | None = None
        self.on_failure: Callable[[], None] = lambda: None
        # A database is watched from its first statement, and stored once it is served.
        self._unserved: WeakKeyDictionary[Database, list[Any]] = WeakKeyDictionary()

    def watch(self, database: Database) -> None:
        """Collect the entries of a new database, in case it is going to be served."""
        if self.directory is not None:
            entries = self._unserved[database] = []
            database.journal.listener = lambda entry: entries.append(entry_to_plain(entry))

    def keep(self, database: Database, *, created_us: int) -> None:
        """Store a database from its first statement on."""
        if self.directory is not None:
            with self._failing():
                journal = self.directory.keep_database(
                    database.name,
                    dialect=database.catalogue.dialect,
                    created_us=created_us,
                    entries=self._unserved.pop(database),
                )
            self.resume(database, journal)

    def resume(self, database: Database, journal: JournalFile) -> None:
        """Continue a database whose earlier entries are in its journal."""

        def append(entry: JournalEntry) -> None:
            with self._failing():
                journal.append(entry_to_plain(entry))

        database.journal.listener = append

    def forget(self, database: str) -> None:
        """Remove a dropped database."""
        self._note(lambda directory: directory.forget_database(database))

    def keep_instance(self, name: str, message: bytes) -> None:
        """Store an instance, or its new state."""
        self._note(lambda directory: directory.keep_instance(name, message))

    def forget_instance(self, name: str) -> None:
        """Remove a deleted instance."""
        self._note(lambda directory: directory.forget_instance(name))

    def keep_time(self, now_us: int, *, ahead_us: int | None) -> None:
        """Store the clock's time and how it runs, so that time does not go back."""
        self._note(lambda directory: directory.keep_time(now_us, ahead_us=ahead_us))

    def _note(self, act: Callable[[DataDirectory], None]) -> None:
        if self.directory is not None:
            with self._failing():
                act(self.directory)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except OSError as error:
            self.failure = error
            self.on_failure()
            raise
