"""Images built by `buildah`, which needs no daemon, in a storage of their own below `build/`.

The base images of the Dockerfiles come from a registry of images.  Here their place is taken by one
of Debian's packages, of the same release.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
STORAGE = REPOSITORY / "build" / "images"

RELEASE = "bookworm"
"""The release of Debian that the base images have; a test compares it with the Dockerfiles."""

_PACKAGES = ("ca-certificates", "netbase", "python-is-python3", "python3-venv", "tzdata")
"""What the slim image of Python has; Debian has the venv module in a package of its own."""

_COMPILER = ("gcc", "libc6-dev", "python3-dev")

_CERTIFICATES = Path("/usr/local/share/ca-certificates")
"""Where Debian keeps those that a machine trusts in addition, such as a proxy's."""

BUILD_ARGUMENTS = {"BASE": "localhost/base", "BUILDER_BASE": "localhost/builder-base"}


@dataclass(frozen=True, slots=True)
class ImageStore:
    """Images and their layers, which the next run continues with."""

    folder: Path = STORAGE

    def run(self, command: str, *arguments: str) -> str:
        """Run a command of `buildah`; return its standard output, fail with its last lines."""
        done = subprocess.run(
            [
                *("buildah", "--root", str(self.folder / "storage")),
                *("--runroot", str(self.folder / "run"), command, *arguments),
            ],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{command} {arguments}\n{(done.stdout + done.stderr)[-4000:]}"
        return done.stdout.strip()

    def build(self, tag: str, dockerfile: Path, *arguments: str) -> None:
        """Build an image, its commands in a chroot with the machine's network."""
        self.run(
            "build",
            *("--isolation", "chroot", "--network", "host", "--layers", "--format", "docker"),
            *(*arguments, "-f", str(dockerfile), "-t", tag, str(REPOSITORY)),
        )

    def ensure_bases(self) -> None:
        """Make the bases from Debian's packages, unless they are there."""
        # An interrupted run has left its containers.
        self.run("rm", "--all")
        if not self._has("base"):
            self._make_base()
        if not self._has("builder-base"):
            dockerfile = self.folder / "builder-base"
            dockerfile.write_text(
                "FROM localhost/base\nRUN apt-get update && apt-get install -y "
                f"--no-install-recommends {' '.join(_COMPILER)} && rm -rf /var/lib/apt/lists/*\n"
            )
            self.build("builder-base", dockerfile)

    def _has(self, image: str) -> bool:
        images = json.loads(self.run("images", "--json") or "[]")
        return any(f"localhost/{image}:latest" in (one["names"] or ()) for one in images)

    def _make_base(self) -> None:
        with self.container("scratch") as (name, root):
            packages = f"--include={','.join(_PACKAGES)}"
            command = ["debootstrap", "--variant=minbase", packages, RELEASE, str(root), *_mirror()]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
            for certificate in _CERTIFICATES.glob("*.crt"):
                shutil.copy(certificate, root / str(_CERTIFICATES).lstrip("/"))
            subprocess.run(["chroot", str(root), "update-ca-certificates"], check=True)
            # As the images of Debian are: what apt fetches is not kept.
            subprocess.run(["chroot", str(root), "apt-get", "clean"], check=True)
            fetched = "/var/cache/apt/archives/*.deb /var/cache/apt/*.bin"
            (root / "etc/apt/apt.conf.d/clean").write_text(
                f'DPkg::Post-Invoke {{ "rm -f {fetched}"; }};\n'
            )
            shutil.rmtree(root / "var/lib/apt/lists")
            self.run("commit", "--quiet", name, "base")

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[tuple[str, Path]]:
        """Yield a container's name and its root folder; both are gone afterwards."""
        name = self.run("from", "--pull-never", image)
        try:
            yield name, Path(self.run("mount", name))
        finally:
            self.run("rm", name)

    def config(self, image: str) -> dict[str, Any]:
        """Return what the Dockerfile says of a start: `Env`, `Entrypoint`, `Healthcheck` …"""
        return dict(json.loads(self.run("inspect", "--type", "image", image))["Docker"]["config"])

    def history(self, image: str) -> str:
        """Return all that `inspect` prints, the commands of each layer among it."""
        return self.run("inspect", "--type", "image", image)

    def layers(self, image: str) -> list[int]:
        """Return the bytes of each layer, uncompressed, those of the base first."""
        manifest = json.loads(json.loads(self.history(image))["Manifest"])
        return [int(layer["size"]) for layer in manifest["layers"]]


def pip_configuration() -> str:
    """Return the machine's configuration of pip, its environment variables too, as a file."""
    listed = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    pairs = (line.partition("=") for line in listed.splitlines())
    # `:env:.index-url='…'`, `global.index-url='…'`
    options = {name.rpartition(".")[2]: value.strip("'\"") for name, _, value in pairs}
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())


def _mirror() -> Sequence[str]:
    """Return the address that apt has for the release; without one debootstrap knows its own."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {RELEASE}"]
    done = subprocess.run(targets, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[:1]
