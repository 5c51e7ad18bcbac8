"""The name of a Spanner database, with the address that serves it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """A database's address and resource name."""

    address: str
    """host:port of the simulator or emulator."""
    project: str = "local"
    instance: str = "bank"
    database: str = "bank"

    @property
    def path(self) -> str:
        """The database's full resource name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"
