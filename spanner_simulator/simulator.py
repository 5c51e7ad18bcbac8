"""A simulator in this process: the gRPC server and the control port on one event loop in a thread.

`Simulator` is what tests use; the command line uses the same `serve`. The control verbs are methods
here, so a test needs no HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tidegate.spanner_simulator.control import Control, start_control_server
from tidegate.spanner_simulator.core.database import DatabaseSettings
from tidegate.spanner_simulator.server.grpc_server import PortTakenError, start_grpc_server
from tidegate.spanner_simulator.server.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from tidegate.spanner_simulator.core.change_streams.churn import ChurnKind
    from tidegate.spanner_simulator.core.values import Plain

__all__ = ["PortTakenError", "Simulator", "SimulatorConfig", "serve"]

_START_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """Everything that can be set; ports 0 mean any free one.

    `linger_ms` lets news gather before a waiting change stream query sends them.
    `separate_children` announces each child stream partition in a record of its own.
    """

    host: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    seed: int = 0
    stream_partitions: int = 2
    equal_timestamps: float = 0.0
    linger_ms: int = 5
    separate_children: bool = False


async def serve(
    config: SimulatorConfig, ready: Callable[[str, str, Control], None], stop: asyncio.Event
) -> None:
    """Run until `stop` is set; `ready` hears the two addresses. Raises `PortTakenError`."""
    host = Host(
        seed=config.seed,
        settings=DatabaseSettings(config.stream_partitions, config.equal_timestamps),
        linger_ms=config.linger_ms,
        separate_children=config.separate_children,
    )
    host.start()
    control = Control(host, asyncio.get_running_loop())
    server, port = await start_grpc_server(host, f"{config.host}:{config.port}")
    try:
        try:
            http = start_control_server(control, config.host, config.control_port)
        except OSError as error:
            raise PortTakenError(f"{config.host}:{config.control_port}") from error
        try:
            ready(f"{config.host}:{port}", f"{config.host}:{http.server_address[1]}", control)
            await stop.wait()
        finally:
            await asyncio.to_thread(http.shutdown)
            http.server_close()
    finally:
        host.close()
        await server.stop(grace=None)


class Simulator:
    """A running simulator, from `with` to the end of the block.

    `grpc_address` is what SPANNER_EMULATOR_HOST takes, `control_address` answers HTTP.
    """

    def __init__(self, config: SimulatorConfig | None = None) -> None:
        self._config = config or SimulatorConfig()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.grpc_address = ""
        self.control_address = ""
        self._control: Control | None = None

    def __enter__(self) -> Self:
        """Start; raises `PortTakenError`."""
        self._thread = threading.Thread(target=self._run, name="spanner-simulator", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError("the simulator did not start")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; running queries end."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self._config, self._ready, self._stop)

        try:
            asyncio.run(main())
        except Exception as failure:  # noqa: BLE001  # handed to the thread that started us
            self._failure = failure
        finally:
            self._started.set()

    def _ready(self, grpc_address: str, control_address: str, control: Control) -> None:
        self.grpc_address, self.control_address = grpc_address, control_address
        self._control = control
        self._started.set()

    @property
    def control(self) -> Control:
        """The control verbs; only while the simulator runs."""
        if self._control is None:
            raise RuntimeError("the simulator is not running: use it in a with statement")
        return self._control

    def stream_partitions(self, database: str, stream: str) -> list[dict[str, Any]]:
        """The live stream partitions."""
        return self.control.stream_partitions(database=database, stream=stream)

    def split(
        self,
        database: str,
        stream: str,
        *,
        token: str | None = None,
        table: str | None = None,
        key: list[Plain] | None = None,
    ) -> dict[str, Any]:
        """Split one stream partition; without arguments the busiest, at its middle key."""
        return self.control.split(
            database=database, stream=stream, token=token, table=table, key=key
        )

    def merge(
        self, database: str, stream: str, *, tokens: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Merge neighbours; without tokens the least busy pair."""
        return self.control.merge(database=database, stream=stream, tokens=tokens)

    def move(self, database: str, stream: str, *, token: str | None = None) -> dict[str, Any]:
        """Replace one stream partition by a child with the same keys."""
        return self.control.move(database=database, stream=stream, token=token)

    def churn(
        self,
        database: str,
        stream: str,
        *,
        mean_life_ms: int = 5000,
        weights: dict[ChurnKind, float] | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Let stream partitions split, merge and move by themselves."""
        return self.control.churn(
            database=database, stream=stream, mean_life_ms=mean_life_ms, weights=weights, seed=seed
        )

    def stop_churn(self, database: str, stream: str) -> dict[str, Any]:
        """End the churn."""
        return self.control.churn(database=database, stream=stream, enabled=False)

    def interrupt(
        self, database: str, stream: str, *, token: str | None = None, code: str = "UNAVAILABLE"
    ) -> dict[str, Any]:
        """End running queries with a status, as a broken connection would."""
        return self.control.interrupt(database=database, stream=stream, token=token, code=code)

    def commit_log(self, database: str, stream: str, *, first: int = 0) -> list[dict[str, Any]]:
        """What was committed, from transaction number `first` on."""
        return list(self.control.commit_log(database=database, stream=stream, first=first))
