"""The server's state besides the core: instances, databases, sessions, operations, readers.

All of it belongs to one event loop and is used nowhere else.  `clock` is the time for all of it,
`faults` are the injected faults, `holds` the stream partitions that must send nothing.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from spanner_simulator.core.change_streams.churn import ChurnSettings
from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import Code, SpannerError, invalid_argument, not_found
from spanner_simulator.server.churn_timers import ChurnTimers
from spanner_simulator.server.clock import Clock, wall_clock_us
from spanner_simulator.server.connections import cut_connections
from spanner_simulator.server.encoding.change_rows import ChangeRowEncoder
from spanner_simulator.server.faults import Faults, Holds
from spanner_simulator.server.keeping.data_directory import DataDirectory, KeptDatabase
from spanner_simulator.server.keeping.keeper import Keeper
from spanner_simulator.server.messages import Message
from spanner_simulator.server.open_transactions import OpenTransactions
from spanner_simulator.server.sql_support import find_sql_support

if TYPE_CHECKING:
    from spanner_simulator.sql.engine import SqlEngine


__all__ = ["Host", "HostedDatabase", "Reader", "Session", "wall_clock_us"]


_DATABASE_NAME = re.compile(r"(projects/[^/]+/instances/[^/]+)/databases/[^/]+")
# How often policies and retention periods are applied; the service itself takes longer.
_EXPIRY_PAUSE_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Session:
    """A session; `role` is empty for full access."""

    name: str
    database: HostedDatabase
    role: str
    is_multiplexed: bool
    created_us: int
    labels: dict[str, str] = field(default_factory=dict)

    def check_privilege(self, table: str, privilege: str) -> None:
        """PERMISSION_DENIED unless the session's role may do this to a table."""
        catalogue = self.database.database.catalogue
        if self.role and not catalogue.has_privilege(self.role, "TABLE", table, privilege):
            raise SpannerError(
                Code.PERMISSION_DENIED,
                f"Role {self.role} does not have required privileges: {privilege} on table "
                f"{table} is missing.",
            )


@dataclass(slots=True, eq=False)
class Reader:
    """A running query of a stream partition: woken by new data, ended by an injected fault."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    fault: SpannerError | None = None


class HostedDatabase:
    """A database with the queries that run on it."""

    def __init__(
        self,
        database: Database,
        *,
        created_us: int,
        clock: Clock,
        churn: ChurnTimers,
        engine: Callable[[], SqlEngine],
    ) -> None:
        """`engine` creates the SQL engine, at the first SQL statement.

        `clock` is advanced if something happens in the database after now.  `churn` is notified of
        new change streams.
        """
        self.database = database
        self.clock = clock
        self._churn = churn
        self.created_us = created_us
        self.encoder = ChangeRowEncoder()
        self.readers: dict[str, set[Reader]] = {}
        # Set, and replaced, at each commit, split, merge, move and change of the schema.
        self.news = asyncio.Event()
        self.transactions = OpenTransactions()
        self._make_engine = engine
        database.streams.listener = self._hear
        # Its schema may have existed before.
        self._keep_up()

    @cached_property
    def engine(self) -> SqlEngine:
        """The SQL engine; UNIMPLEMENTED without the extra `[sql]`."""
        return self._make_engine()

    def _keep_up(self) -> None:
        self.clock.reach(self.database.clock.newest_us)
        self._churn.follow(self.database)

    def _hear(self, tokens: Iterable[str]) -> None:
        self._keep_up()
        self.news.set()
        self.news = asyncio.Event()
        self.wake(tokens)

    def wake(self, tokens: Iterable[str]) -> None:
        """Let the queries of these stream partitions check for new data."""
        for token in tokens:
            for reader in self.readers.get(token, ()):
                reader.news.set()

    def attach(self, token: str) -> Reader:
        """Register a query of a stream partition."""
        reader = Reader()
        self.readers.setdefault(token, set()).add(reader)
        return reader

    def detach(self, token: str, reader: Reader) -> None:
        """Remove a query that has ended."""
        readers = self.readers[token]
        readers.discard(reader)
        if not readers:
            del self.readers[token]

    def interrupt(self, tokens: Iterable[str], fault: SpannerError) -> int:
        """End the running queries of these stream partitions; return their number."""
        count = 0
        for token in tokens:
            for reader in self.readers.get(token, ()):
                reader.fault = fault
                reader.news.set()
                count += 1
        return count


class Host:
    """Everything one simulator serves."""

    def __init__(
        self,
        *,
        seed: int,
        settings: DatabaseSettings,
        now_us: Callable[[], int] = wall_clock_us,
        frozen_at_us: int | None = None,
        linger_ms: int = 5,
        separate_children: bool = False,
        directory: DataDirectory | None = None,
        churn: ChurnSettings | None = None,
    ) -> None:
        """`linger_ms`: how long a waiting query collects records before it sends them.

        `directory` keeps everything over a restart; None: in memory only.  `now_us` is the clock's
        source while it runs; `frozen_at_us`: it starts frozen at this time.  `churn`: how the
        stream partitions of every change stream churn from its start on; None: they do not.
        """
        self.clock = Clock(now_us, frozen_at_us=frozen_at_us)
        self.now_us = self.clock.now_us
        self.faults = Faults()
        self.holds = Holds(self._wake)
        self.churn = ChurnTimers(self.clock, settings=churn, seed_of=self._seed_of)
        self.linger_s = linger_ms / 1000
        self.separate_children = separate_children
        self.instances: dict[str, Message] = {}
        self.databases: dict[str, HostedDatabase] = {}
        self.sessions: dict[str, Session] = {}
        self.operations: dict[str, object] = {}
        self.keeper = Keeper(directory)
        self._seed = seed
        self._settings = settings
        self._sql = find_sql_support()
        self._chances: Counter[str] = Counter()
        self._session_chance = self._chance("sessions")
        # The address of the API, once it is served.
        self.port = 0

    def start(self) -> None:
        """Let timers run on the running event loop."""
        self.clock.start()
        self._expire_hourly()

    def _expire_hourly(self) -> None:
        # Scheduled first, so that there is a next time whatever happens now.
        self.clock.call_at(self.now_us() + _EXPIRY_PAUSE_US, self._expire_hourly)
        for hosted in list(self.databases.values()):
            self.expire(hosted)

    def expire(self, hosted: HostedDatabase) -> tuple[int, int]:
        """Delete rows and records that policies and retention periods have expired by now."""
        now_us = self.now_us()
        rows = hosted.database.expire_rows(now_us)
        return rows, hosted.database.streams.expire(now_us)

    def close(self) -> None:
        """End all background work."""
        self.clock.close()

    def reset(self) -> None:
        """Remove everything, like a new simulator with the same seed."""
        for name in list(self.instances):
            self.remove_instance(name)
        self.operations.clear()
        self.holds.release()
        self.faults.reset()
        self.clock.reset()
        self.keep_time()
        self._expire_hourly()
        self._chances.clear()
        self._session_chance = self._chance("sessions")

    def keep_time(self) -> None:
        """Store the changed time for the next process."""
        self.keeper.keep_time(self.now_us(), ahead_us=self.clock.ahead_us)

    def drop_connections(self) -> int:
        """Cut every TCP connection of the API; return their number."""
        return cut_connections(self.port)

    def _wake(self, tokens: Iterable[str]) -> None:
        chosen = list(tokens)
        for hosted in self.databases.values():
            hosted.wake(chosen)

    def _chance(self, purpose: str) -> random.Random:
        return random.Random(self._seed_of(purpose))  # noqa: S311  # repeatable is what is wanted here

    def _seed_of(self, purpose: str) -> str:
        """A seed for one purpose: the same in every run.

        Another one after a restart, and for an object that is re-created under its name, so that no
        token is used twice.
        """
        directory = self.keeper.directory
        self._chances[purpose] += 1
        times = (0 if directory is None else directory.openings, self._chances[purpose])
        return f"{self._seed}:{purpose}:{times}"

    def create_database(self, name: str, *, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> Database:
        """A new empty database to serve; each has its own random numbers from the seed."""
        database = self.new_database(name, dialect=dialect)
        self.keeper.watch(database)
        return database

    def new_database(self, name: str, *, dialect: Dialect) -> Database:
        """A new empty database that is not stored."""
        return Database(
            name,
            self._chance(name),
            self._settings,
            dialect,
            expressions=self._sql.expressions,
            analysis=self._sql.analysis,
        )

    def add_database(self, database: Database, *, created_us: int | None = None) -> HostedDatabase:
        """Serve a new database from now on, under its own name."""
        created_us = self.now_us() if created_us is None else created_us
        self.keeper.keep(database, created_us=created_us)
        return self._serve(database, created_us)

    def resume_database(self, database: Database, kept: KeptDatabase) -> HostedDatabase:
        """Serve a database again whose journal has been replayed."""
        self.keeper.resume(database, kept.journal)
        return self._serve(database, kept.created_us)

    def _serve(self, database: Database, created_us: int) -> HostedDatabase:
        hosted = HostedDatabase(
            database,
            created_us=created_us,
            clock=self.clock,
            churn=self.churn,
            engine=lambda: self._sql.engine(database),
        )
        self.databases[database.name] = hosted
        return hosted

    def add_instance(self, name: str, instance: Message) -> None:
        """Serve an instance, or its new state; the message is GetInstance's answer."""
        self.keeper.keep_instance(name, instance.SerializeToString())
        self.instances[name] = instance

    def remove_instance(self, name: str) -> None:
        """Remove an instance and its databases."""
        for database in [
            database_name
            for database_name in self.databases
            if database_name.startswith(name + "/")
        ]:
            self.drop_database(database)
        self.keeper.forget_instance(name)
        del self.instances[name]

    def database(self, name: str) -> HostedDatabase:
        """A database by full resource name, or by its short name if that is unambiguous."""
        hosted = self.databases.get(name)
        if hosted is None and "/" not in name:
            matches = [
                database for full, database in self.databases.items() if full.endswith("/" + name)
            ]
            hosted = matches[0] if len(matches) == 1 else None
        if hosted is None:
            raise not_found(f"Database not found: {name}")
        return hosted

    def drop_database(self, name: str) -> None:
        """Remove a database with its sessions, holds and churn; its running queries end."""
        hosted = self.databases.pop(name, None)
        if hosted is None:
            return
        self.keeper.forget(name)
        # Running calls would write to a closed file.
        hosted.database.journal.listener = None
        hosted.interrupt(list(hosted.readers), not_found(f"Database not found: {name}"))
        self.churn.forget(hosted.database)
        for state in hosted.database.streams.by_name.values():
            self.holds.release(state.partitions.by_token)
        for session in [
            open_session
            for open_session in self.sessions.values()
            if open_session.database is hosted
        ]:
            del self.sessions[session.name]

    def create_session(
        self,
        database: str,
        *,
        role: str,
        is_multiplexed: bool,
        labels: dict[str, str] | None = None,
    ) -> Session:
        """A session; NOT_FOUND for a role that does not exist."""
        hosted = self.served(database)
        if role:
            hosted.database.catalogue.role(role)
        name = f"{database}/sessions/{self._session_chance.getrandbits(144):036x}"
        session = Session(name, hosted, role, is_multiplexed, self.now_us(), labels or {})
        self.sessions[name] = session
        return session

    def session(self, name: str) -> Session:
        """A session by name, or NOT_FOUND with the text that clients look for.

        INVALID_ARGUMENT for a text that is not a session's name.
        """
        session = self.sessions.get(name)
        if session is None:
            database, separator, _ = name.partition("/sessions/")
            self.served(database if separator else name)
            raise not_found(f"Session not found: {name}")
        return session

    def served(self, name: str) -> HostedDatabase:
        """A database by full resource name only; otherwise the API's error for the missing part."""
        match = _DATABASE_NAME.fullmatch(name)
        if match is None:
            raise invalid_argument(f"Invalid project uri: {name}")
        if match.group(1) not in self.instances:
            raise not_found(f"Instance not found: {match.group(1)}")
        if name not in self.databases:
            raise not_found(f"Database not found: {name}")
        return self.databases[name]
