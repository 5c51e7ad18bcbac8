"""Archives of the classes that each Java program loads; with one it starts in half the CPU time.

Java calls this class data sharing.  On request a program writes its classes to a file when it ends,
and later starts map that file in place of reading and verifying the same classes from jars.  An
archive fits the Java and the class path with which it was made; Java ignores any other.

Invariant: a published folder is complete.  It appears by one rename, with a stamp that lists every
archive and its size, because Java does not survive an archive that was cut short.

Standard library only: `dev` uses this module before anything is installed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate.local_stack.parts.jvm_parts import cache_dir

SPARK = "spark"

STAMP = "stamp.json"

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Keeps Java's messages about archives from standard output, where programs print results."""


class ClassOptions(Protocol):
    """The options of a Java program for its class archive."""

    def options(self, program: str) -> tuple[str, ...]:
        """Return options for Java; `program` is the name of an archive."""


@dataclass(frozen=True, slots=True)
class ClassArchives:
    """The archives in `folder`, as options for Java; none where none was made."""

    folder: Path

    def options(self, program: str) -> tuple[str, ...]:
        """Return the options with which `program` starts from its archive."""
        archive = self.folder / f"{program}.jsa"
        try:
            size = archive.stat().st_size
        except OSError:
            return ()
        if self._stamp().get(archive.name) != size:
            return ()
        return (f"-XX:SharedArchiveFile={archive}", *SILENT)

    def are_of(self, key: str) -> bool:
        """Whether archives were made for `key`, even if some or all of them could not be made."""
        return self._stamp().get("key") == key

    @property
    def exist(self) -> bool:
        """Whether archives were made, for any Java."""
        return "key" in self._stamp()

    def seal(self, key: str) -> None:
        """Write the stamp: after this nothing in the folder changes."""
        sizes = {path.name: path.stat().st_size for path in sorted(self.folder.glob("*.jsa"))}
        (self.folder / STAMP).write_text(json.dumps({"key": key, **sizes}, indent=0))

    def _stamp(self) -> dict[str, object]:
        try:
            stamp = json.loads((self.folder / STAMP).read_text())
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}


def class_archives(environment: Path | None = None) -> ClassArchives:
    """Return the archives of the programs of a virtual environment, by default of the running one.

    They are in its folder, and are removed with the packages whose classes they hold; without an
    environment they are in the user's cache.
    """
    if environment is None and sys.prefix != sys.base_prefix:
        environment = Path(sys.prefix)
    return ClassArchives((environment or cache_dir()) / "class-archives")
