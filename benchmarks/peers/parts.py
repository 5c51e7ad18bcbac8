"""Debezium's connector and Kafka Connect, fetched once per user and machine.

`ivy.xml` has the versions.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.local_stack.parts.jvm_parts import cache_dir, only_one, retrieve
from tidegate.program.java import Java

_IVY_XML = Path(__file__).with_name("ivy.xml")
_JARS = "jars"
_PATTERN = f"[conf]/{_JARS}/[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, slots=True)
class PeerParts:
    """The jars below `root`; connector and converter have class loaders of their own."""

    root: Path

    @property
    def connect_class_path(self) -> str:
        """Class path of Kafka Connect."""
        return str(self.root / "connect" / _JARS / "*")

    @property
    def plugin_path(self) -> str:
        """Where Connect looks for the connector and the converter to Avro."""
        return ",".join(str(self.root / name) for name in ("debezium", "avro"))

    def version(self, artifact: str) -> str:
        """Return the version of a fetched jar; ends the program if there is none."""
        for jar in self.root.glob(f"*/{_JARS}/{artifact}-[0-9]*.jar"):
            return jar.stem.removeprefix(f"{artifact}-")
        sys.exit(f"{artifact} was not fetched")


def fetch_peer_parts(java: Java, *, report: Callable[[str], None]) -> PeerParts:
    """Return the parts, fetching them first if they are missing.

    Takes some minutes then.  Raises FetchError with Ivy's last lines.
    """
    folder = cache_dir() / "peers"
    ivy_xml = _IVY_XML.read_bytes()
    root = folder / hashlib.sha256(ivy_xml).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder / "lock", report=report):
        if not root.exists():
            work, ivy_cache = root.with_suffix(".part"), folder / "ivy"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            retrieve(
                java,
                ivy_xml,
                pattern=_PATTERN,
                work=work,
                cache=ivy_cache,
                what="Kafka Connect and Debezium's connector",
                report=report,
            )
            # Now it is complete.
            work.rename(root)
            shutil.rmtree(ivy_cache, ignore_errors=True)
    return PeerParts(root)
