"""A folder that keeps instances and databases over restarts, for one process at a time.

`directory.journal` lists the instances and databases, `database-N.journal` has the entries of one.
Commits are written to the operating system before they are acknowledged, so they survive the
process; a thread syncs them to the disk once a second, so a power failure loses at most one second.
Sessions and running transactions are not kept: clients make new ones.
"""

from __future__ import annotations

import base64
import fcntl
import os
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from spanner_simulator.core.values import Dialect
from spanner_simulator.server.keeping.journal_file import DamagedJournalError, JournalFile

_LOCK = "simulator.lock"
_LIST = "directory.journal"
_SYNC_S = 1.0


class DataDirectoryError(Exception):
    """A folder that cannot be used; the message gives the reason and the fix."""


@dataclass(slots=True)
class KeptDatabase:
    """A database of the folder; `journal` has all its entries."""

    name: str
    dialect: Dialect
    created_us: int
    journal: JournalFile


class DataDirectory:
    """One opened folder. `messages` are lines to print for the user who started the program."""

    def __init__(self, path: Path) -> None:
        """Open, or create. Raises `DataDirectoryError`."""
        self.path = path
        self.messages: list[str] = []
        self.instances: dict[str, bytes] = {}
        self.databases: dict[str, KeptDatabase] = {}
        # The clock's last time, and how far it ran ahead of real time from there, if it ran.
        self.time_us = 0
        self.ahead_us: int | None = None
        # How often the folder was opened before: equal random numbers would repeat tokens.
        self.openings = 0
        self._numbers: dict[str, int] = {}
        self._last_number = 0
        self._closing = threading.Event()
        self._lock = self._take_lock()
        with ExitStack() as undo:
            undo.callback(os.close, self._lock)
            self._list = self._open(_LIST)
            undo.callback(self._list.close)
            undo.callback(self._close_databases)
            self._read_list()
            undo.pop_all()
        self._syncer = threading.Thread(target=self._sync, name="simulator-sync", daemon=True)
        self._syncer.start()

    def _take_lock(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in self.path.iterdir()} - {_LOCK}
            if names and _LIST not in names:
                raise DataDirectoryError(
                    f"{self.path} holds other files ({min(names)}): choose an empty folder"
                )
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirectoryError(f"cannot keep data in {self.path}: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise DataDirectoryError(
                f"{self.path} is in use by another simulator: choose another folder"
            ) from error
        return lock

    def _open(self, name: str) -> JournalFile:
        try:
            journal = JournalFile(self.path / name)
        except (DamagedJournalError, OSError) as error:
            raise DataDirectoryError(f"cannot read the data of a simulator: {error}") from error
        if journal.cut_bytes:
            self.messages.append(
                f"{journal.path}: cut {journal.cut_bytes} bytes of an entry that was not complete"
            )
        return journal

    def _read_list(self) -> None:
        listed: dict[str, tuple[Dialect, int, int]] = {}
        try:
            for entry in self._list.entries():
                match entry:
                    case ["opened"]:
                        self.openings += 1
                    case ["time", int(now_us), int() | None as ahead_us]:
                        self.time_us, self.ahead_us = now_us, ahead_us
                    case ["instance", name, message]:
                        self.instances[name] = base64.b64decode(message)
                    case ["no instance", name]:
                        del self.instances[name]
                    case ["database", name, number, dialect, created_us]:
                        listed[name] = dialect, created_us, number
                        self._last_number = max(self._last_number, number)
                    case ["no database", name]:
                        del listed[name]
                    case _:
                        self._misunderstood(entry)
        except (DamagedJournalError, KeyError, ValueError, TypeError) as error:
            raise DataDirectoryError(f"cannot read the data of a simulator: {error}") from error
        for name, (dialect, created_us, number) in listed.items():
            if not self._file(number).exists():
                raise DataDirectoryError(f"{self._file(number)}, with the data of {name}, is gone")
            self._numbers[name] = number
            journal = self._open(self._file(number).name)
            self.databases[name] = KeptDatabase(name, dialect, created_us, journal)
        numbers = set(self._numbers.values())
        for path in self.path.glob("database-*.journal"):
            if path not in {self._file(number) for number in numbers}:
                # Its database was dropped, or not yet created, when the process ended.
                path.unlink()
        self._append(["opened"])

    def _misunderstood(self, entry: Any) -> NoReturn:
        raise DamagedJournalError(f"{self._list.path} has an entry of no sense: {entry}")

    def _file(self, number: int) -> Path:
        return self.path / f"database-{number:06d}.journal"

    def _append(self, entry: list[Any]) -> None:
        self._list.append(entry)
        self._list.sync()

    def keep_time(self, now_us: int, *, ahead_us: int | None) -> None:
        """Store the clock's time, and how far it runs ahead of real time; None if it is frozen."""
        self.time_us, self.ahead_us = now_us, ahead_us
        self._append(["time", now_us, ahead_us])

    def keep_instance(self, name: str, message: bytes) -> None:
        """Store an instance, or its new state."""
        self.instances[name] = message
        self._append(["instance", name, base64.b64encode(message).decode()])

    def forget_instance(self, name: str) -> None:
        """Remove an instance."""
        if self.instances.pop(name, None) is not None:
            self._append(["no instance", name])

    def keep_database(
        self, name: str, *, dialect: Dialect, created_us: int, entries: list[Any]
    ) -> JournalFile:
        """Store a database with its entries so far; return its journal."""
        self._last_number += 1
        journal = self._open(self._file(self._last_number).name)
        for entry in entries:
            journal.append(entry)
        journal.sync()
        self._append(["database", name, self._last_number, dialect, created_us])
        self._numbers[name] = self._last_number
        self.databases[name] = KeptDatabase(name, dialect, created_us, journal)
        return journal

    def forget_database(self, name: str) -> None:
        """Remove a database and its file."""
        database = self.databases.pop(name, None)
        if database is None:
            return
        self._append(["no database", name])
        del self._numbers[name]
        database.journal.close()
        database.journal.path.unlink()

    def _sync(self) -> None:
        while not self._closing.wait(_SYNC_S):
            for database in list(self.databases.values()):
                # The next append raises it.
                with suppress(OSError):
                    database.journal.sync()

    def _close_databases(self) -> None:
        for database in self.databases.values():
            database.journal.close()

    def close(self) -> None:
        """Sync everything to the disk and release the folder for other processes."""
        self._closing.set()
        self._syncer.join()
        self._close_databases()
        self._list.close()
        os.close(self._lock)
