"""Google's own Spanner emulator as a program: where it is, and one run of it.

It is a part of the Cloud SDK, never of this project: whoever needs it asks `find_emulator` and says
`ABSENT` when it returns None.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Self

ABSENT = (
    "Google's Spanner emulator is not installed beside gcloud, and "
    "SPANNER_EMULATOR_PROGRAM does not name it"
)
_START_S = 60
# Longer than any run: its own splits and merges abort transactions, and now and then hang them.
_TOKEN_LIFE_S = 86400


def find_emulator() -> Path | None:
    """The emulator's program: named by the environment, or beside `gcloud`."""
    if named := os.environ.get("SPANNER_EMULATOR_PROGRAM"):
        return Path(named)
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return None
    beside = Path(gcloud).parent
    real = Path(gcloud).resolve().parent
    below = Path("cloud_spanner_emulator") / "emulator_main"
    places = (
        real / below,
        beside / below,
        beside.parent / "lib" / "google-cloud-sdk" / "bin" / below,
    )
    return next((place for place in places if place.is_file()), None)


class Emulator:
    """One running emulator, from `with` to the end of the block; it may crash and be restarted."""

    def __init__(self, program: Path, log: Path) -> None:
        self._program = program
        self._log = log
        self._file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it answers. Raises `TimeoutError`."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._file = self._log.open("ab")
        life = f"--override_change_stream_partition_token_alive_seconds={_TOKEN_LIFE_S}"
        command = [str(self._program), "--host_port", self.address, life]
        self._process = subprocess.Popen(command, stdout=self._file, stderr=subprocess.STDOUT)
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise TimeoutError(f"the emulator did not start; its output is in {self._log}")

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        """Kill it; it keeps nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._file is not None:
            self._file.close()
