"""Verbs on databases and on the simulator as a whole."""

from __future__ import annotations

from typing import Any, Literal

from spanner_simulator.control.on_loop import OnLoop
from spanner_simulator.control.verb import action, question
from spanner_simulator.server.host import Host
from spanner_simulator.server.provision import create_database, drop_database


class DatabaseVerbs(OnLoop):
    """Verbs for databases and the simulator itself. All raise `SpannerError`."""

    @question()
    def health(self) -> dict[str, Any]:
        """Whether the event loop answers, and which databases there are."""
        return self._run(lambda host: {"status": "ok", "databases": list(host.databases)})

    @action
    def create_database(
        self,
        database: str,
        *,
        ddl: list[str] | None = None,
        dialect: Literal["GOOGLE_STANDARD_SQL", "POSTGRESQL"] = "GOOGLE_STANDARD_SQL",
        instance: str = "test-instance",
        project: str = "test-project",
    ) -> dict[str, Any]:
        """Create a database with its schema, and its instance if there is none yet."""

        async def act(host: Host) -> dict[str, Any]:
            name = await create_database(
                host,
                project=project,
                instance=instance,
                database=database,
                statements=ddl or [],
                dialect=dialect,
            )
            return {"name": name, "project": project, "instance": instance, "database": database}

        return self._run_coroutine(act)

    @action
    def drop_database(self, database: str) -> dict[str, Any]:
        """Drop a database; its running queries end."""

        async def act(host: Host) -> dict[str, Any]:
            name = host.database(database).database.name
            await drop_database(host, name)
            return {"dropped": name}

        return self._run_coroutine(act)

    @action
    def reset(self) -> dict[str, Any]:
        """Delete everything and begin again with the same seed; addresses stay."""

        def act(host: Host) -> dict[str, Any]:
            host.reset()
            return {"databases": list(host.databases)}

        return self._run(act)
