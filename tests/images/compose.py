"""The services of `deploy/compose.yaml`, as Docker Compose would start them.

A key of the file that this module does not know is an error, so that nothing of the file is left
out silently.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.images.buildah import REPOSITORY, ImageStore
from tests.images.containers import ContainerSpec

CONTENT = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")
_HARDENED = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "restart": "on-failure",
}
"""What every container of these tests is: see `containers.py`."""

_SECONDS = {"s": 1, "m": 60}


@dataclass(frozen=True, slots=True)
class Compose:
    """The file, with the variables that the user has set."""

    variables: Mapping[str, str]

    def service(self, name: str) -> dict[str, Any]:
        """Return a service of the file, its variables replaced."""
        return dict(self._replaced(CONTENT["services"][name]))

    def _secret(self, name: str) -> Path:
        return Path(self._replaced(CONTENT["secrets"][name]["file"]))

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._replaced(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._replaced(one) for one in value]
        return _VARIABLE.sub(self._value, value) if isinstance(value, str) else value

    def _value(self, found: re.Match[str]) -> str:
        name, operator, text = found.groups()
        value = self.variables.get(name, "")
        if value or not operator:
            return value
        assert operator == ":-", f"{name}: {text}"
        return str(text)

    def container(
        self, name: str, *, store: ImageStore, root: Path, volumes: Path, hosts: Path
    ) -> ContainerSpec:
        """Return the container of a service of ours; its volumes are folders below `volumes`.

        `root` are the files of its image, `hosts` the addresses of the other services.
        """
        service = self.service(name)
        for key, expected in _HARDENED.items():
            assert service.pop(key) == expected, key
        config = store.config(service.pop("image"))
        mounts = {"/etc/hosts": hosts}
        for secret in service.pop("secrets", ()):
            mounts[f"/run/secrets/{secret}"] = self._secret(secret)
        for volume in service.pop("volumes", ()):
            source, _, path = volume.partition(":")
            mounts[path] = _volume(volumes / source, like=root / path.lstrip("/"))
        grace = service.pop("stop_grace_period")
        spec = ContainerSpec(
            name=name,
            root=root,
            command=[*config["Entrypoint"], *service.pop("command", config["Cmd"])],
            environ={
                **dict(one.split("=", 1) for one in config["Env"]),
                **{key: str(value) for key, value in service.pop("environment").items()},
            },
            user=int(config["User"]),
            folder=config["WorkingDir"],
            health=_command(
                service.pop("healthcheck", {}).get("test", config["Healthcheck"]["Test"])
            ),
            mounts=mounts,
            tmpfs=service.pop("tmpfs", ()),
            grace_s=int(grace[:-1]) * _SECONDS[grace[-1]],
        )
        # The network is one for all, and who waits for whom is the test's.
        assert service.keys() <= {"depends_on", "ports"}
        return spec


def _volume(folder: Path, *, like: Path) -> Path:
    """Make a new volume, which gets the owner of the image's folder, as Docker does it."""
    if not folder.exists():
        folder.mkdir(parents=True)
        owner = like.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
    return folder


def _command(test: list[str]) -> list[str]:
    kind, *command = test
    assert kind == "CMD", test
    return command
