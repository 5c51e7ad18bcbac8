"""What a test has of its own on the broker and registry that it shares with others."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient

from spanner_simulator import Simulator
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidegate.local_stack.parts.stack import LocalStack

__all__ = ["SharedStack", "new_prefix", "now", "open_shared_stack"]

_STREAM_PARTITIONS = 4
"""As a `LocalStack` has them."""
_PATIENCE_S = 60


def now() -> str:
    """Return the time at which a stream starts that begins now."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def new_prefix() -> str:
    """Return a prefix that no other test has, for topics, groups and subjects."""
    return f"t{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class SharedStack:
    """The addresses as a `LocalStack` has them, and the names that belong to one test."""

    bootstrap_servers: str
    registry_url: str
    simulator: Simulator
    prefix: str
    folder: Path

    @property
    def spanner_address(self) -> str:
        """The simulator's gRPC address."""
        return self.simulator.grpc_address

    @property
    def control_address(self) -> str:
        """The simulator's control address."""
        return self.simulator.control_address

    @property
    def database_name(self) -> DatabaseName:
        """The only database of the test's simulator."""
        return DatabaseName(address=self.spanner_address)

    def create_database(
        self, statements: Sequence[str], *, dialect: Dialect = Dialect.GOOGLESQL
    ) -> Any:
        """Create the database with its tables and change stream; return the client's object."""
        return create_database(self.database_name, statements, dialect=dialect)

    def topic(self, table: str) -> str:
        """Return the name of a table's topic."""
        return f"{self.prefix}.{table}"

    def programs(self, stream: str, **more: str) -> Programs:
        """Return the programs of a pipeline; `more` is added to their environment."""
        return Programs(
            folder=self.folder,
            bootstrap_servers=self.bootstrap_servers,
            registry_url=self.registry_url,
            spanner_address=self.spanner_address,
            database=self.database_name,
            stream=stream,
            prefix=self.prefix,
            more=more,
        )


@contextlib.contextmanager
def open_shared_stack(
    stack: LocalStack, folder: Path, *, seed: int = 5, stream_partitions: int = _STREAM_PARTITIONS
) -> Iterator[SharedStack]:
    """Yield a simulator and a prefix on a running broker and registry.

    At the end the simulator stops and the prefix's topics are deleted, so that nothing of a test
    takes time from the next one.
    """
    with Simulator(seed=seed, stream_partitions=stream_partitions) as simulator:
        opened = SharedStack(
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            simulator=simulator,
            prefix=new_prefix(),
            folder=folder,
        )
        try:
            yield opened
        finally:
            _delete_topics(opened)


def _delete_topics(stack: SharedStack) -> None:
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    names = [n for n in admin.list_topics(timeout=_PATIENCE_S).topics if n.startswith(stack.prefix)]
    for deleted in admin.delete_topics(names).values() if names else ():
        deleted.result(_PATIENCE_S)
