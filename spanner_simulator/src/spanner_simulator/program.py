"""The simulator as a program: serves until SIGTERM or SIGINT, and prints its addresses when ready.

`cli` imports this module after reading the flags, because it loads gRPC and Google's messages.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanner_simulator.control import Verbs
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import Code, SpannerError, failed_precondition
from spanner_simulator.server.host import Host
from spanner_simulator.server.keeping.data_directory import DataDirectoryError
from spanner_simulator.server.provision import create_database
from spanner_simulator.simulator import PortTakenError, SimulatorConfig, serve


class ProgramError(Exception):
    """The program cannot start or continue; the text is one line for its user."""


@dataclass(frozen=True, slots=True)
class FirstDatabase:
    """A database that exists when the first client calls."""

    project: str
    instance: str
    database: str
    dialect: Dialect
    statements: Sequence[str]

    async def create(self, host: Host) -> None:
        """Create it, unless an earlier run did."""
        try:
            await create_database(host, **dataclasses.asdict(self))
        except SpannerError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            name = f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"
            dialect = host.database(name).database.catalogue.dialect
            if dialect != self.dialect:
                raise failed_precondition(
                    f"{self.database} exists already, in the dialect {dialect}",
                ) from error


def run_program(settings: Mapping[str, Any], first: FirstDatabase | None) -> None:
    """Serve until SIGTERM or SIGINT; `settings` are fields of `SimulatorConfig`.

    When clients may call, prints one line of JSON with the addresses. Raises `ProgramError`.
    """
    try:
        asyncio.run(_serve(SimulatorConfig(**settings), first))
    except PortTakenError as error:
        raise ProgramError(
            f"cannot listen on {error}: the address is in use; choose another port"
        ) from error
    except SpannerError as error:
        raise ProgramError(f"cannot create the database: {error.message}") from error
    except (ValueError, OSError, DataDirectoryError) as error:
        raise ProgramError(str(error)) from error


async def _serve(config: SimulatorConfig, first: FirstDatabase | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(config, Verbs(), _announce, stop, prepare=first.create if first else None)


def _announce(grpc_address: str, control_address: str) -> None:
    sys.stdout.write(json.dumps({"grpc": grpc_address, "control": control_address}) + "\n")
    sys.stdout.flush()
