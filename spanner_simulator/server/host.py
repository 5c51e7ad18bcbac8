"""What the server holds beside the core: instances, databases, sessions, operations, readers.

All of it lives on one event loop and is touched from nowhere else.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.change_streams.churn import ChurnKind, ChurnPolicy
from tidegate.spanner_simulator.core.database import Database, DatabaseSettings
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.change_rows import ChangeRowEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Host", "HostedDatabase", "Reader", "Session", "wall_clock_us"]


def wall_clock_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Session:
    """A session; `role` is empty for full access."""

    name: str
    database: HostedDatabase
    role: str
    is_multiplexed: bool
    created_us: int


@dataclass(slots=True, eq=False)
class Reader:
    """A running query of a stream partition: woken by news, ended by an injected fault."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    fault: SpannerError | None = None


@dataclass(slots=True)
class Churn:
    """A running churn policy of one change stream."""

    policy: ChurnPolicy
    task: asyncio.Task[None] | None = None


class HostedDatabase:
    """A database with the queries that run on it."""

    def __init__(self, database: Database, *, created_us: int) -> None:
        self.database = database
        self.created_us = created_us
        self.encoder = ChangeRowEncoder()
        self.readers: dict[str, set[Reader]] = {}
        self.churn: dict[str, Churn] = {}
        database.streams.listener = self._wake

    def _wake(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            for reader in self.readers.get(token, ()):
                reader.news.set()

    def attach(self, token: str) -> Reader:
        """Note a query of a stream partition."""
        reader = Reader()
        self.readers.setdefault(token, set()).add(reader)
        return reader

    def detach(self, token: str, reader: Reader) -> None:
        """The query has ended."""
        readers = self.readers[token]
        readers.discard(reader)
        if not readers:
            del self.readers[token]

    def interrupt(self, tokens: Iterable[str], fault: SpannerError) -> int:
        """End the queries that run on these stream partitions; how many there were."""
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
        linger_ms: int = 5,
        separate_children: bool = False,
    ) -> None:
        """`linger_ms`: how long a waiting query lets news gather before it sends them."""
        self.now_us = now_us
        self.linger_s = linger_ms / 1000
        self.separate_children = separate_children
        self.instances: dict[str, object] = {}
        self.databases: dict[str, HostedDatabase] = {}
        self.sessions: dict[str, Session] = {}
        self.operations: dict[str, object] = {}
        self._seed = seed
        self._settings = settings

    def create_database(self, name: str) -> Database:
        """A new empty database, not yet published; each has its own chance from the seed."""
        chance = _seeded(f"{self._seed}:{name}")  # repeatable, not secret
        return Database(name, chance, self._settings)

    def database(self, name: str) -> HostedDatabase:
        """A database by full resource name, or by its short name when that is unambiguous."""
        found = self.databases.get(name)
        if found is None and "/" not in name:
            matches = [one for full, one in self.databases.items() if full.endswith("/" + name)]
            found = matches[0] if len(matches) == 1 else None
        if found is None:
            raise SpannerError(Code.NOT_FOUND, f"Database not found: {name}")
        return found

    def drop_database(self, name: str) -> None:
        """Forget a database, its sessions and its running queries."""
        hosted = self.databases.pop(name, None)
        if hosted is None:
            return
        hosted.interrupt(
            list(hosted.readers), SpannerError(Code.NOT_FOUND, f"Database not found: {name}")
        )
        for stream in list(hosted.churn):
            self.stop_churn(hosted, stream)
        for session in [one for one in self.sessions.values() if one.database is hosted]:
            del self.sessions[session.name]

    def create_session(self, database: str, *, role: str, is_multiplexed: bool) -> Session:
        """A session; NOT_FOUND for a role that does not exist."""
        hosted = self.databases.get(database)
        if hosted is None:
            raise SpannerError(Code.NOT_FOUND, f"Database not found: {database}")
        if role:
            hosted.database.catalogue.role(role)
        name = f"{database}/sessions/{secrets.token_urlsafe(18)}"
        session = Session(name, hosted, role, is_multiplexed, self.now_us())
        self.sessions[name] = session
        return session

    def session(self, name: str) -> Session:
        """A session by name, or NOT_FOUND in the words that clients look for."""
        session = self.sessions.get(name)
        if session is None:
            raise SpannerError(Code.NOT_FOUND, f"Session not found: {name}")
        return session

    def start_churn(
        self,
        hosted: HostedDatabase,
        stream: str,
        *,
        mean_life_ms: int,
        weights: dict[ChurnKind, float],
        seed: int,
    ) -> None:
        """Let stream partitions of a change stream split, merge and move by themselves."""
        name = hosted.database.streams.state(stream).name.lower()
        self.stop_churn(hosted, name)
        policy = ChurnPolicy(
            _seeded(str(seed)),  # repeatable, not secret
            mean_life_ms=mean_life_ms,
            weights=weights,
        )
        churn = hosted.churn[name] = Churn(policy)
        churn.task = asyncio.get_running_loop().create_task(self._run_churn(hosted, name, policy))

    def stop_churn(self, hosted: HostedDatabase, stream: str) -> None:
        """End the policy, if one runs."""
        churn = hosted.churn.pop(stream.lower(), None)
        if churn is not None and churn.task is not None:
            churn.task.cancel()

    async def _run_churn(self, hosted: HostedDatabase, name: str, policy: ChurnPolicy) -> None:
        database = hosted.database
        while name in database.streams.by_name:
            live = database.streams.by_name[name].partitions.live
            for action in policy.due(self.now_us(), live):
                now_us = self.now_us()
                match action.kind:
                    case "split":
                        try:
                            database.streams.split(name, now_us=now_us, token=action.tokens[0])
                        except SpannerError:
                            # Too narrow to split: it still has to end its life.
                            database.streams.move(name, now_us=now_us, token=action.tokens[0])
                    case "merge":
                        database.streams.merge(name, now_us=now_us, tokens=action.tokens)
                    case "move":
                        database.streams.move(name, now_us=now_us, token=action.tokens[0])
            policy.due(self.now_us(), database.streams.by_name[name].partitions.live)
            next_us = policy.next_due_us()
            wait_us = 1_000_000 if next_us is None else next_us - self.now_us()
            await asyncio.sleep(max(1_000, wait_us) / 1e6)


def _seeded(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311  # repeatable is what is wanted here
