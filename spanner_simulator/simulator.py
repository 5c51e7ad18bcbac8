"""A simulator in this process: the gRPC server and the control port on one event loop in a thread.

`Simulator` is what tests use; the command line uses the same `serve`. The control verbs are methods
here, so a test needs no HTTP.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tidegate.spanner_simulator.control import Verbs, start_control_server
from tidegate.spanner_simulator.core.database import DatabaseSettings
from tidegate.spanner_simulator.core.timestamps import parse_ns
from tidegate.spanner_simulator.server.grpc_server import PortTakenError, start_grpc_server
from tidegate.spanner_simulator.server.host import Host
from tidegate.spanner_simulator.server.official_client import connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["PortTakenError", "Simulator", "SimulatorConfig", "serve"]

_START_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """Everything that can be set; ports 0 mean any free one.

    `frozen_at`: the clock begins frozen at this RFC 3339 time; None: it follows real time.
    `linger_ms` lets news gather before a waiting change stream query sends them.
    `separate_children` announces each child stream partition in a record of its own.
    """

    host: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    seed: int = 0
    stream_partitions: int = 2
    equal_timestamps: float = 0.0
    frozen_at: str | None = None
    linger_ms: int = 5
    separate_children: bool = False


async def serve(
    config: SimulatorConfig,
    verbs: Verbs,
    ready: Callable[[str, str], None],
    stop: asyncio.Event,
) -> None:
    """Run until `stop` is set; `ready` hears the two addresses, gRPC's first.

    The verbs work in between. Raises `PortTakenError`, and `SpannerError` for a `frozen_at` that is
    no time.
    """
    host = Host(
        seed=config.seed,
        settings=DatabaseSettings(config.stream_partitions, config.equal_timestamps),
        frozen_at_us=None if config.frozen_at is None else parse_ns(config.frozen_at) // 1000,
        linger_ms=config.linger_ms,
        separate_children=config.separate_children,
    )
    server, host.port = await start_grpc_server(host, f"{config.host}:{config.port}")
    try:
        try:
            http = start_control_server(verbs, config.host, config.control_port)
        except OSError as error:
            raise PortTakenError(f"{config.host}:{config.control_port}") from error
        try:
            host.start()
            verbs.attach(host, asyncio.get_running_loop())
            ready(f"{config.host}:{host.port}", f"{config.host}:{http.server_address[1]}")
            await stop.wait()
        finally:
            verbs.detach()
            await asyncio.to_thread(http.shutdown)
            http.server_close()
    finally:
        host.close()
        await server.stop(grace=None)


class Simulator(Verbs):
    """A running simulator, from `with` to the end of the block.

    `grpc_address` is what SPANNER_EMULATOR_HOST takes, `control_address` answers HTTP. Settings
    are those of `SimulatorConfig`, as keywords too: `Simulator(seed=7)`.
    """

    def __init__(self, config: SimulatorConfig | None = None, **settings: Any) -> None:
        super().__init__()
        self._config = dataclasses.replace(config or SimulatorConfig(), **settings)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.grpc_address = ""
        self.control_address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start and return when clients may call; raises `PortTakenError`."""
        self._started.clear()
        self._thread = threading.Thread(target=self._serve, name="spanner-simulator", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError("the simulator did not start")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop; running queries end. Without effect when it does not run."""
        loop, self._loop = self._loop, None
        if loop is not None and self._stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(_START_TIMEOUT_S)

    def _serve(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self._config, self, self._ready, self._stop)

        self._failure = None
        try:
            asyncio.run(main())
        except Exception as failure:  # noqa: BLE001  # handed to the thread that started us
            self._failure = failure
        finally:
            self._started.set()

    def _ready(self, grpc_address: str, control_address: str) -> None:
        self.grpc_address, self.control_address = grpc_address, control_address
        self._started.set()

    def environment(self) -> dict[str, str]:
        """Variables with which any official client, in any language, finds the simulator."""
        return {
            "SPANNER_EMULATOR_HOST": self.grpc_address,
            # Without this the Python client would report its metrics to Google's servers.
            "SPANNER_DISABLE_BUILTIN_METRICS": "true",
        }

    def client(self, project: str = "test-project") -> Any:
        """A `google.cloud.spanner.Client` of this simulator, whatever the environment says."""
        return connect(self.grpc_address, project=project)
