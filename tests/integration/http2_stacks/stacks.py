"""Programs with an HTTP/2 stack of their own, as proxies before the simulator.

Each takes TLS with HTTP/2 and passes calls on in plaintext.  Sources of the two proxies over gRPC
are beside this module, with the versions of what they are built from.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 60.0
_BUILD_S = 300.0
_SAID_MAX = 500
_HERE = Path(__file__).parent
_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/go/bin"])
_METHODS = tuple(
    f"/google.spanner.v1.Spanner/{name}"
    for name in ("CreateSession", "ExecuteSql", "ExecuteStreamingSql")
)
"""What a worker calls: a server of grpc-js has no handler for others."""

_NGINX = """\
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_processes 2;
worker_shutdown_timeout 5s;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {certificate};
    ssl_certificate_key {certificate};
    # A connection is replaced after some queries.
    keepalive_requests 40;
    location / {{
      grpc_pass grpc://{backend};
    }}
  }}
}}
"""
_HAPROXY = """\
global
  hard-stop-after 5s
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend tls
  bind 127.0.0.1:{port} ssl crt {certificate} alpn h2
  default_backend spanner
backend spanner
  server simulator {backend} proto h2
"""
_NGHTTPX = """\
frontend=127.0.0.1,{port}
backend={backend_with_comma};;proto=h2
private-key-file={certificate}
certificate-file={certificate}
errorlog-file={folder}/nghttpx.log
accesslog-file=/dev/null
pid-file={folder}/nghttpx.pid
no-ocsp=yes
workers=2
"""


@dataclass(frozen=True, slots=True)
class Stack:
    """A kind of proxy: its program, and how it is configured, built, started and reloaded.

    Commands and the configuration are templates: `{folder}` is the proxy's, `{file}` its
    configuration, `{address}` its own address and `{port}` that one's port, `{backend}` what it
    passes calls on to, `{certificate}` a file with a key and a certificate.
    """

    name: str
    needs: str
    """The program that has to be on PATH."""
    install: str
    """What to type where it is missing."""
    command: tuple[str, ...]
    version: tuple[str, ...]
    """A command that prints the version."""
    reload: signal.Signals = signal.SIGHUP
    configuration: str = ""
    sources: str = ""
    """The folder beside this module that a proxy is built from."""
    fetch: tuple[str, ...] = ()
    """A command that fetches what its lock file names."""
    build: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """What to type where the program is missing, else nothing."""
        if shutil.which(self.needs, path=_PATH) is None:
            return f"{self.needs} is not on PATH; type: {self.install}"
        return ""


_BUILT_COMMAND = ("{address}", "{backend}", "{certificate}")
STACKS = (
    Stack(
        name="nginx",
        needs="nginx",
        install="apt-get install nginx-light",
        command=("nginx", "-c", "{file}", "-p", "{folder}"),
        version=("nginx", "-v"),
        configuration=_NGINX,
    ),
    Stack(
        name="HAProxy",
        needs="haproxy",
        install="apt-get install haproxy",
        command=("haproxy", "-W", "-f", "{file}"),
        version=("haproxy", "-v"),
        reload=signal.SIGUSR2,  # to the master of `-W`
        configuration=_HAPROXY,
    ),
    Stack(
        name="nghttpx",
        needs="nghttpx",
        install="apt-get install nghttp2-proxy",
        command=("nghttpx", "--conf={file}"),
        version=("nghttpx", "--version"),
        configuration=_NGHTTPX,
    ),
    Stack(
        name="grpc-go",
        needs="go",
        install="apt-get install golang",
        command=("{folder}/proxy", *_BUILT_COMMAND),
        version=("go", "list", "-m", "-f", "{{.Version}}", "google.golang.org/grpc"),
        sources="grpc_go",
        fetch=("go", "mod", "download"),
        build=("go", "build", "-mod=readonly", "-o", "proxy", "."),
    ),
    Stack(
        name="grpc-js",
        needs="npm",
        install="apt-get install nodejs npm",
        command=("node", "{folder}/proxy.js", *_BUILT_COMMAND, *_METHODS),
        version=("node", "-p", "require('@grpc/grpc-js/package.json').version"),
        sources="grpc_js",
        fetch=("npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"),
    ),
)


class NotFetchedError(Exception):
    """The parts of a proxy are not on this machine, and its client cannot fetch them."""


class Proxy:
    """A running proxy, at `address`, that passes calls on to `backend`."""

    def __init__(self, stack: Stack, folder: Path, *, backend: str, certificate: Path) -> None:
        """Build what is to be built; raises NotFetchedError."""
        self._stack = stack
        self._folder = folder
        self._log = folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        port, file = _free_port(), folder / "proxy.conf"
        self.address = f"127.0.0.1:{port}"
        values = {
            "folder": folder,
            "file": file,
            "address": self.address,
            "port": port,
            "backend": backend,
            "certificate": certificate,
        }
        file.write_text(
            stack.configuration.format(
                **values,
                backend_with_comma=backend.replace(":", ","),
                # Workers of root's nginx are another user's, which may not write to the folder.
                user=f"user {getpass.getuser()};" if os.geteuid() == 0 else "",
            )
        )
        self._command = [word.format(**values) for word in stack.command]
        if stack.sources:
            shutil.copytree(_HERE / stack.sources, folder, dirs_exist_ok=True)
            self._run(stack.fetch, NotFetchedError)
        if stack.build:
            self._run(stack.build, AssertionError)

    @property
    def name(self) -> str:
        """The stack's."""
        return self._stack.name

    @property
    def version(self) -> str:
        """The version that the program prints."""
        printed = self._run(self._stack.version, AssertionError)
        found = _VERSION.search(printed)
        assert found is not None, printed
        return found[0]

    def start(self) -> None:
        """Start, and wait until connections are taken."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                _found(self._command), stdout=output, stderr=output, start_new_session=True
            )
        give_up_at = time.monotonic() + PATIENCE_S
        while not _answers(self.address):
            assert self._process.poll() is None, self._log.read_text()[-2_000:]
            assert time.monotonic() < give_up_at, self._log.read_text()[-2_000:]
            time.sleep(0.05)

    def reload(self) -> None:
        """Let the program replace its servers, as after a new certificate; wait until it has."""
        assert self._process is not None
        before = self._servers()
        self._process.send_signal(self._stack.reload)
        give_up_at = time.monotonic() + PATIENCE_S
        while self._servers() <= before:
            assert time.monotonic() < give_up_at, self._log.read_text()[-2_000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """End the program and its children at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _servers(self) -> set[str]:
        """Return the processes that take calls; of a proxy that is built, the servers it named."""
        assert self._process is not None
        if self._stack.sources:
            return {line for line in self._log.read_text().splitlines() if "server" in line}
        pid = self._process.pid
        return {*Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def _run(self, command: Sequence[str], failure: type[Exception]) -> str:
        done = subprocess.run(
            _found(command),
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BUILD_S,
            check=False,
            env={**os.environ, "PATH": _PATH},
        )
        if done.returncode:
            said = " ".join(done.stdout.split())[-_SAID_MAX:]
            raise failure(f"{self.name}: `{' '.join(command)}` failed: {said}")
        return done.stdout


def _found(command: Sequence[str]) -> list[str]:
    """Return a command with the path of its program."""
    return [shutil.which(command[0], path=_PATH) or command[0], *command[1:]]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except OSError:
        return False
