"""Both images, built once, and a network of the tests' own."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images.buildah import BUILD_ARGUMENTS, REPOSITORY, ImageStore, pip_configuration
from tests.images.kafka_service import fetch_tools
from tests.tidy.printed_commands import blocks

SECRET = "a-token-that-only-the-build-knows"

_CLONE_NEWNET, _SIOCSIFFLAGS, _IFF_UP = 0x40000000, 0x8914, 1


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> ImageStore:
    """Build both images as `docker/README.md` says, but on the local bases."""
    shutil.rmtree(REPOSITORY / "dist", ignore_errors=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    secret = tmp_path_factory.mktemp("secrets") / "pip.conf"
    secret.write_text(f"{pip_configuration()}# {SECRET}\n")
    store = ImageStore()
    store.folder.mkdir(parents=True, exist_ok=True)
    store.ensure_bases()
    for image, dockerfile in printed_builds().items():
        arguments = [f"--build-arg={name}={value}" for name, value in BUILD_ARGUMENTS.items()]
        store.build(image, dockerfile, f"--secret=id=pip.conf,src={secret}", *arguments)
    return store


def printed_builds() -> dict[str, Path]:
    """Return the Dockerfile of each image by the commands in `docker/README.md`."""
    lines = [
        command
        for block in blocks("sh")
        if block.page == "docker/README.md"
        for command in block.commands()
        if command[:2] == ["docker", "build"]
    ]
    builds: dict[str, Path] = {}
    for command in lines:
        match command:
            case ["docker", "build", "-f", dockerfile, "-t", tag, "."]:
                builds[tag] = REPOSITORY / dockerfile
            case _:
                assert "--build-arg" in command or "--secret" in command, shlex.join(command)
    return builds


@pytest.fixture(scope="session")
def kafka_tools() -> Path:
    """Kafka's command line tools, in the version of the Compose file."""
    from tests.images.compose import Compose

    return fetch_tools(Compose({}).service("kafka")["image"].rpartition(":")[2])


@pytest.fixture(scope="session")
def own_network(store, kafka_tools) -> Iterator[None]:
    """Move this thread, and what it starts, into a network that has nothing but a loopback.

    The ports of the Compose file are free there, and nothing can be fetched.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    assert libc.unshare(_CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        yield
    finally:
        libc.setns(before, _CLONE_NEWNET)
        os.close(before)
