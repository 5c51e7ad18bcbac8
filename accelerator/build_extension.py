"""Compiles the module for the wheel, with the compiler that Python was built with."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE = "tidegate_accelerator"


class ExtensionBuild(BuildHookInterface[Any]):
    """Adds the module to the wheel, and the tags of this Python and machine to its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Compile; raises CalledProcessError or OSError without a compiler or Python's headers."""
        self._folder = tempfile.TemporaryDirectory()
        name = _MODULE + str(sysconfig.get_config_var("EXT_SUFFIX"))
        built = Path(self._folder.name) / name
        flags = (sysconfig.get_config_var(key) or "" for key in ("LDSHARED", "CFLAGS", "CCSHARED"))
        command = [
            *(word for text in flags for word in shlex.split(text)),
            *("-O2", f"-I{sysconfig.get_path('include')}"),
            *shlex.split(os.environ.get("CFLAGS", "")),
            *map(str, sorted(Path(self.root).glob("*.c"))),
            *("-o", str(built)),
        ]
        subprocess.run(command, check=True)
        build_data["force_include"][str(built)] = name
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - as above
        """Remove what was compiled, which the wheel holds now."""
        self._folder.cleanup()
