"""Containers of an image, started by `runc` as a container engine would start them.

The first process of a container has the number 1, no capability, and a root file system that it
cannot write to.  The network is that of the test.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_GONE_S = 30.0
_NAMESPACES = ("pid", "mount", "ipc", "uts")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container as an image and a deployment describe it."""

    name: str
    root: Path
    """The image's files."""
    command: Sequence[str]
    environ: Mapping[str, str]
    user: int
    folder: str
    health: Sequence[str] = ()
    """The command of the health check."""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Folders and files of the machine by their path in the container."""
    tmpfs: Sequence[str] = ()
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL."""
    memory: int = 0
    """Bytes at most; 0: no limit."""


@dataclass(slots=True)
class Container:
    """One run of a container; its files and its log are below `folder`."""

    spec: ContainerSpec
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Standard output and standard error."""
        return self.folder / f"{self.spec.name}.log"

    def start(self) -> None:
        """Start it in the background."""
        bundle = self.folder / f"{self.spec.name}.bundle"
        bundle.mkdir(parents=True, exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._config()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._runc("run"), "--bundle", str(bundle), self.spec.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self, seconds: float) -> int:
        """Return the exit code of its first process; raises TimeoutExpired."""
        assert self.process is not None
        return self.process.wait(seconds)

    def terminate(self) -> int:
        """Send SIGTERM to the first process; return its exit code, 137 if it had to be killed."""
        subprocess.run([*self._runc("kill"), self.spec.name, "TERM"], check=True)
        try:
            return self.wait(self.spec.grace_s)
        except subprocess.TimeoutExpired:
            subprocess.run([*self._runc("kill"), self.spec.name, "KILL"], check=True)
            return self.wait(_GONE_S)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as `docker exec` does."""
        return subprocess.run(
            [*self._runc("exec"), self.spec.name, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def is_healthy(self) -> bool:
        """Whether the health check passes now."""
        return self.run(*self.spec.health).returncode == 0

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def remove(self) -> None:
        """End it, if it still runs, and remove what `runc` keeps of it."""
        delete = [*self._runc("delete"), "--force", self.spec.name]
        subprocess.run(delete, check=False, capture_output=True)
        if self.process is not None:
            self.process.wait(_GONE_S)

    def _runc(self, command: str) -> list[str]:
        return ["runc", "--root", str(self.folder / "runc"), command]

    def _config(self) -> dict[str, Any]:
        spec = self.spec
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _tmpfs("/dev", "mode=755"),
            _tmpfs("/dev/shm", "mode=1777"),
            *(_tmpfs(path, "mode=1777") for path in spec.tmpfs),
            *(
                {
                    "destination": path,
                    "type": "bind",
                    "source": str(source),
                    "options": ["bind", "rw" if source.is_dir() else "ro"],
                }
                for path, source in spec.mounts.items()
            ),
        ]
        return {
            "ociVersion": "1.0.2",
            "hostname": spec.name,
            "process": {
                "user": {"uid": spec.user, "gid": spec.user},
                "args": list(spec.command),
                "env": [f"{name}={value}" for name, value in spec.environ.items()],
                "cwd": spec.folder or "/",
                "noNewPrivileges": True,
                "capabilities": {
                    kind: []
                    for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
                },
            },
            "root": {"path": str(spec.root), "readonly": True},
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in _NAMESPACES],
                "resources": {"memory": {"limit": spec.memory}} if spec.memory else {},
            },
        }


def _tmpfs(path: str, *options: str) -> dict[str, Any]:
    return {
        "destination": path,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", *options],
    }


def until(condition: Any, containers: Sequence[Container], *, patience_s: float, what: str) -> None:
    """Wait for a condition; fail with the logs at the end of the patience, or of a container."""
    give_up_at = time.monotonic() + patience_s
    while not condition():
        ended = [container.spec.name for container in containers if not container.is_running]
        if ended or time.monotonic() > give_up_at:
            logs = "\n".join(
                f"--- {container.log}\n{container.log.read_text()[-3000:]}"
                for container in containers
            )
            raise AssertionError(f"waited for {what}; ended: {ended}\n{logs}")
        time.sleep(0.3)
