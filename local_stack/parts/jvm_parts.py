"""The jars of the broker, the registry and Spark, fetched once per user and machine.

`ivy_file` lists them with pinned versions, those of the installed Spark; run as a program, this
module prints that list.  Ivy, whose jar is a part of pyspark, fetches them from its default
repository, or from those of the operator's settings file; no address is in this code.

Invariant: a published folder is complete.  It appears by one rename, under the hash of that list,
with a stamp that lists every file and its size; a folder that does not match its stamp is fetched
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from tidegate.local_stack.errors import FetchError
from tidegate.program.java import Java
from tidegate.program.spark_versions import DELTA, SparkLine, installed_line

STAMP = "stamp.json"

RETRIEVE_PATTERN = "[conf]/[artifact]-[revision](-[classifier]).[ext]"

LOCK_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class JvmParts:
    """A complete set of JVM parts below `root`."""

    root: Path

    @property
    def broker_class_path(self) -> str:
        """Class path of `kafka.Kafka` and `kafka.tools.StorageTool`."""
        return str(self.root / "broker" / "*")

    @property
    def registry_jar(self) -> Path:
        """The registry's runnable jar; its libraries are in the same folder."""
        return next((self.root / "registry").glob("*-runner.jar"))

    @property
    def spark_jars(self) -> tuple[Path, ...]:
        """The value of `spark.jars`: what Spark needs in addition to pyspark's jars."""
        return tuple(sorted((self.root / "spark").glob("*.jar")))

    @property
    def iceberg_jars(self) -> tuple[Path, ...]:
        """The jars that a session with Iceberg sinks needs in addition to `spark_jars`."""
        return tuple(sorted((self.root / "iceberg").glob("*.jar")))


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Tidegate's folder in the user's cache; an empty HOME counts as unset."""
    environ = os.environ if environ is None else environ
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "tidegate"
    home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(home) / ".cache" / "tidegate"


def fetched_jvm_parts(cache: Path | None = None) -> JvmParts | None:
    """Return the parts if they are complete; uses no network and takes no lock."""
    root = _published_folder(cache_dir() if cache is None else cache)
    return JvmParts(root) if _is_complete(root) else None


def fetch_jvm_parts(
    java: Java,
    *,
    cache: Path | None = None,
    report: Callable[[str], None] = lambda _line: None,
    environ: Mapping[str, str] | None = None,
) -> JvmParts:
    """Return the parts, fetching them first if they are missing or damaged.

    `report` gets a short line for each step.  Of two calls at once the second waits for the first.
    Raises FetchError with Ivy's last lines.
    """
    cache = cache_dir() if cache is None else cache
    parts = fetched_jvm_parts(cache)
    if parts is not None:
        return parts
    root = _published_folder(cache)
    root.parent.mkdir(parents=True, exist_ok=True)
    with only_one(root.with_suffix(".lock"), report=report):
        if not _is_complete(root):
            _fetch_into(root, java=java, report=report, environ=environ)
    return JvmParts(root)


def _ivy_xml() -> bytes:
    return ivy_file(installed_line())


def _published_folder(cache: Path) -> Path:
    return cache / "jvm" / hashlib.sha256(_ivy_xml()).hexdigest()[:16]


def _is_complete(root: Path) -> bool:
    try:
        listed = json.loads((root / STAMP).read_text())
    except (OSError, ValueError):
        return False
    return bool(listed == _sizes(root))


def _sizes(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != STAMP
    }


@contextlib.contextmanager
def only_one(lock: Path, *, report: Callable[[str], None]) -> Iterator[None]:
    """Hold `lock` against other processes; it is free again when this one ends in any way."""
    with lock.open("w") as handle:
        has_reported = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not has_reported:
                    report("waiting for another process that does the same")
                    has_reported = True
                time.sleep(LOCK_POLL_S)
        yield


def _fetch_into(
    root: Path,
    *,
    java: Java,
    report: Callable[[str], None],
    environ: Mapping[str, str] | None,
) -> None:
    work = root.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    ivy_cache = root.parent / "ivy"
    try:
        retrieve(
            java,
            _ivy_xml(),
            pattern=RETRIEVE_PATTERN,
            work=work,
            cache=ivy_cache,
            what="the JVM parts",
            report=report,
            environ=environ,
        )
        report("unpacking the schema registry")
        _unpack_registry(work / "registry")
        (work / STAMP).write_text(json.dumps(_sizes(work), indent=0, sort_keys=True))
        shutil.rmtree(root, ignore_errors=True)
        work.rename(root)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _unpack_registry(folder: Path) -> None:
    archive = next(folder.glob("*.tar.gz"), None)
    if archive is None:
        raise FetchError(
            "the schema registry's archive was not fetched",
            hint="Check the network, and the repositories of an ivysettings.xml; then try again",
            folder=str(folder),
        )
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4; Debian 12 has 3.11.2
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)  # noqa: S202 - Ivy has compared the archive with its checksum
    archive.unlink()
    if not any(folder.glob("*-runner.jar")):
        raise FetchError("the schema registry's archive holds no runner jar", archive=archive.name)


_ICEBERG = (
    '    <dependency org="{}" name="{}" rev="{}" conf="iceberg->default" transitive="false"/>\n'
)


def ivy_file(line: SparkLine) -> bytes:
    """Return the `ivy.xml` of the JVM parts with the connectors of a Spark."""
    template = resources.files("tidegate.local_stack.parts").joinpath("ivy.xml").read_text()
    text = Template(template).substitute(
        minor=line.minor,
        kafka=line.kafka,
        kafka_clients=line.kafka_clients,
        commons_pool=line.commons_pool,
        avro=line.avro,
        delta=DELTA,
        iceberg=_ICEBERG.format(*line.iceberg_packages.split(":")) if line.iceberg else "",
    )
    return text.encode()


# Operators behind a mirror set this to their ivysettings.xml, as for Spark.
SETTINGS_VARIABLE = "TIDEGATE_IVY_SETTINGS"

LAST_LINES = 200


def find_ivy_jar() -> Path:
    """Return Ivy's jar in the installed pyspark, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise FetchError(
            "pyspark is not installed; its Ivy fetches jars",
            hint="Type: pip install 'tidegate[local]'",
        )
    for location in spec.submodule_search_locations:
        for jar in sorted((Path(location) / "jars").glob("ivy-*.jar")):
            return jar
    raise FetchError(
        "the installed pyspark has no Ivy jar",
        hint=f"Type: pip install 'pyspark=={installed_line().pyspark}'",
    )


def retrieve(
    java: Java,
    ivy_xml: bytes,
    *,
    pattern: str,
    work: Path,
    cache: Path,
    what: str,
    report: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> None:
    """Fetch the jars of `ivy_xml` into the folder `work`, named by Ivy's `pattern`.

    Fetched files stay in `cache` after a failure, so that the next attempt continues there.
    `report` gets a short line for each step; `what` names the jars in lines and errors.  Raises
    FetchError with Ivy's last lines.
    """
    environ = os.environ if environ is None else environ
    module_file = work / "ivy.xml"
    module_file.write_bytes(ivy_xml)
    command = [str(java.program), "-Xmx256m", "-jar", str(find_ivy_jar())]
    settings = environ.get(SETTINGS_VARIABLE)
    if settings:
        command += ["-settings", settings]
    command += ["-ivy", str(module_file), "-cache", str(cache)]
    command += ["-retrieve", f"{work}/{pattern}"]
    last_lines: deque[str] = deque(maxlen=LAST_LINES)
    resolved = fetched = 0
    report(f"resolving {what}")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=dict(environ),
        cwd=work,
    ) as ivy:
        try:
            for line in ivy.stdout or ():
                last_lines.append(line.rstrip())
                words = line.split()
                match words[:1]:
                    case ["found"]:
                        resolved += 1
                        report(f"{resolved} modules found, the latest {words[1]}")
                    case ["downloading"]:
                        report(f"{fetched} files fetched, now {words[1].rsplit('/', 1)[-1]}")
                    case ["[SUCCESSFUL"]:
                        fetched += 1
                        report(f"{fetched} files fetched")
                    case _:
                        pass
        except BaseException:
            ivy.kill()
            raise
    module_file.unlink()
    if ivy.returncode != 0:
        raise FetchError(
            f"fetching {what} failed: {_complaint(last_lines)}",
            hint="Check the network (and a proxy in JAVA_TOOL_OPTIONS), then try again; "
            f"behind a mirror, set {SETTINGS_VARIABLE} to an ivysettings.xml",
            exit_code_of_ivy=ivy.returncode,
        )


def _complaint(lines: deque[str]) -> str:
    wanted = [
        line.strip(":\t ")
        for line in lines
        if any(word in line for word in ("UNRESOLVED", "FAILED", "not found", "xception", "rror"))
    ]
    return "; ".join(wanted[:4]) or " ".join(list(lines)[-2:]) or "no output"


if __name__ == "__main__":
    sys.stdout.buffer.write(ivy_file(installed_line()))
