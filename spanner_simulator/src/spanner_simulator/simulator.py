"""A simulator in this process: the gRPC server and the control port on one event loop in a thread.

`Simulator` is what tests use; the command line uses the same `serve`. The control verbs are methods
here, so a test needs no HTTP.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from spanner_simulator.control import Verbs, start_control_server
from spanner_simulator.control.clock_verbs import EARLIEST, LATEST
from spanner_simulator.core.change_streams.churn import (
    CHURN_LIFE_MS_MAX,
    CHURN_LIVE_MAX,
    ChurnSettings,
)
from spanner_simulator.core.database import DatabaseSettings
from spanner_simulator.core.timestamps import parse_ns
from spanner_simulator.errors import SpannerError
from spanner_simulator.server.host import Host
from spanner_simulator.server.keeping.data_directory import DataDirectory, DataDirectoryError
from spanner_simulator.server.official_client import connect
from spanner_simulator.server.restoration import restore
from spanner_simulator.server.transport.grpc_server import PortTakenError, start_grpc_server

__all__ = ["DataDirectoryError", "PortTakenError", "Simulator", "SimulatorConfig", "serve"]

_START_TIMEOUT_S = 30
_GRACE_S = 0.1
_END_TIMEOUT_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """All settings; port 0 means any free one.  ValueError for invalid values.

    `equal_timestamps` is the probability that concurrent transactions share a commit timestamp.
    `frozen_at`: the clock begins frozen at this RFC 3339 time; None: it follows real time.
    `data_directory` keeps databases over restarts; None: in memory only.
    `churn_mean_life_ms`: the stream partitions of every change stream split, merge and move at
    random, after lives with this mean; None: only on command. `churn_live_max` bounds how many of
    one change stream churn makes live at a time: from there on merges take the place of splits.
    `separate_children` announces each child stream partition in a record of its own.
    """

    host: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    seed: int = 0
    stream_partitions: int = 2
    equal_timestamps: float = 0.0
    frozen_at: str | None = None
    data_directory: Path | str | None = None
    churn_mean_life_ms: int | None = None
    churn_live_max: int = 64
    separate_children: bool = False

    def __post_init__(self) -> None:
        """Reject invalid values."""
        refusals = {
            "port must lie in [0, 65535]": not 0 <= self.port <= 65535,
            "control_port must lie in [0, 65535]": not 0 <= self.control_port <= 65535,
            "stream_partitions must lie in [1, 10000]": not 1 <= self.stream_partitions <= 10_000,
            "equal_timestamps must lie in [0, 1]": not 0 <= self.equal_timestamps <= 1,
            f"churn_mean_life_ms must lie in [1, {CHURN_LIFE_MS_MAX}]": not (
                self.churn_mean_life_ms is None or 1 <= self.churn_mean_life_ms <= CHURN_LIFE_MS_MAX
            ),
            f"churn_live_max must lie in [1, {CHURN_LIVE_MAX}]": not (
                1 <= self.churn_live_max <= CHURN_LIVE_MAX
            ),
        }
        for message, is_wrong in refusals.items():
            if is_wrong:
                raise ValueError(message)
        if self.frozen_at is not None:
            try:
                frozen_at_ns = parse_ns(self.frozen_at)
            except SpannerError as error:
                raise ValueError(f"frozen_at must be an RFC 3339 time: {error.message}") from error
            if not parse_ns(EARLIEST) <= frozen_at_ns <= parse_ns(LATEST):
                raise ValueError(f"frozen_at must lie in [{EARLIEST}, {LATEST}]")

    @property
    def frozen_at_us(self) -> int | None:
        """`frozen_at` in microseconds since the epoch."""
        return None if self.frozen_at is None else parse_ns(self.frozen_at) // 1000

    @property
    def churn(self) -> ChurnSettings | None:
        """The churn of every change stream, if there is one."""
        if self.churn_mean_life_ms is None:
            return None
        return ChurnSettings(self.churn_mean_life_ms, self.churn_live_max)


async def serve(
    config: SimulatorConfig,
    verbs: Verbs,
    ready: Callable[[str, str], None],
    stop: asyncio.Event,
    *,
    prepare: Callable[[Host], Awaitable[None]] | None = None,
) -> None:
    """Run until `stop` is set.  Raises `PortTakenError` and `DataDirectoryError`.

    `prepare` runs before the first client may call, and an error in it ends the attempt; then
    `ready` gets the two addresses, gRPC's first, and the verbs work until the end.
    """
    async with AsyncExitStack() as stack:
        directory = None
        if config.data_directory is not None:
            directory = DataDirectory(Path(config.data_directory))
            stack.callback(directory.close)
        host = Host(
            seed=config.seed,
            settings=DatabaseSettings(config.stream_partitions, config.equal_timestamps),
            frozen_at_us=config.frozen_at_us,
            separate_children=config.separate_children,
            directory=directory,
            churn=config.churn,
        )
        stack.callback(host.close)
        restore(host)
        if prepare is not None:
            await prepare(host)
        server, host.port = await start_grpc_server(host, f"{config.host}:{config.port}")
        stack.push_async_callback(_let_calls_end)
        # Idle clients leave by themselves in that time; otherwise each would print a line about it.
        stack.push_async_callback(server.stop, grace=_GRACE_S)
        try:
            http = start_control_server(verbs, config.host, config.control_port)
        except OSError as error:
            address = f"{config.host}:{config.control_port}"
            if error.errno == errno.EADDRINUSE:
                raise PortTakenError(address) from error
            raise OSError(f"cannot listen on {address}: {error.strerror or error}") from error
        stack.callback(http.server_close)
        stack.push_async_callback(asyncio.to_thread, http.shutdown)
        host.keeper.on_failure = stop.set
        host.start()
        verbs.attach(host, asyncio.get_running_loop())
        stack.callback(verbs.detach)
        ready(f"{config.host}:{host.port}", f"{config.host}:{http.server_address[1]}")
        await stop.wait()
    if host.keeper.failure is not None:
        raise DataDirectoryError(f"stopped, as data cannot be kept: {host.keeper.failure}")


async def _let_calls_end() -> None:
    """Wait for calls that the server has ended; otherwise each would print a traceback."""
    calls = asyncio.all_tasks() - {asyncio.current_task()}
    if calls:
        await asyncio.wait(calls, timeout=_END_TIMEOUT_S)


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

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and return when clients may call; raises `PortTakenError`."""
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the simulator runs already")
        self._started.clear()
        self._thread = threading.Thread(target=self._serve, name="spanner-simulator", daemon=True)
        self._thread.start()
        # Reading a folder of old databases may take any time.
        timeout_s = None if self._config.data_directory is not None else _START_TIMEOUT_S
        if not self._started.wait(timeout_s):
            raise TimeoutError("the simulator did not start")
        if self._failure is not None:
            self._thread.join()
            self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Stop; running queries end.  Has no effect if it is not running.

        Raises the error that ended it earlier, such as `DataDirectoryError`.
        """
        loop, self._loop = self._loop, None
        if loop is not None and self._stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(_START_TIMEOUT_S)
        self._raise_failure()

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
        """Environment variables by which official clients, in any language, find the simulator."""
        return {
            "SPANNER_EMULATOR_HOST": self.grpc_address,
            # Without this the Python client would report its metrics to Google's servers.
            "SPANNER_DISABLE_BUILTIN_METRICS": "true",
        }

    def client(self, project: str = "test-project") -> Any:
        """A `google.cloud.spanner.Client` of this simulator, whatever the environment contains."""
        return connect(self.grpc_address, project=project)
