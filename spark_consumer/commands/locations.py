"""Checks of output and checkpoint that are possible before Spark starts.

Spark takes a minute to start and reports a folder that cannot be used in stack traces.  Only
folders of this machine are read and written here; for others this checks that Spark will have the
jar of their file system.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.file_systems import FILE_SYSTEMS, missing_file_system
from tidegate.spark_consumer.checkpoint.gate_files import require_identity
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.config import (
    ICEBERG_PACKAGES,
    LOGIN_PACKAGES,
    SPARK_PACKAGES,
    ConsumerConfig,
)
from tidegate.spark_consumer.sinks.manifest import newest_manifest
from tidegate.spark_consumer.spark.requirements import is_submitted

_CONFIGURED_ELSEWHERE = (
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_HOME",
    "YARN_CONF_DIR",
)
"""What Spark's launcher reads: each may name the default file system, or further jars."""

_OTHER_S3 = ("s3", "s3n")

_ANOTHER_QUERY = (
    "Restore the checkpoint of the query that wrote this output; if it is lost, type "
    "`tidegate-consumer adopt` with an empty --checkpoint, or give --output an empty folder"
)


def require_locations(config: ConsumerConfig) -> None:
    """Raise ConfigError for an output or checkpoint that the run cannot use.

    Leaves no files.  Blocks for a few small reads and writes.
    """
    require_folders(config)
    _require_own_query(config)


def require_folders(config: ConsumerConfig) -> None:
    """Raise ConfigError for an output or checkpoint that Spark cannot read and write."""
    _require_file_systems(config)
    for setting in ("output", "checkpoint"):
        folder = local_folder(getattr(config, setting))
        if folder is not None:
            _require_writable(folder, setting)


def require_release(config: ConsumerConfig) -> None:
    """Raise ConfigError for an output that Spark cannot read, or, here, that has no release."""
    _require_file_systems(config)
    output = local_folder(config.output)
    if (
        output is not None
        and newest_manifest(LocalFolder(output), watermark_us=sys.maxsize) is None
    ):
        raise ConfigError(
            "the output has no release manifest", hint="Check --output", output=config.output
        )


def _require_own_query(config: ConsumerConfig) -> None:
    checkpoint, output = local_folder(config.checkpoint), local_folder(config.output)
    if checkpoint is None:
        return
    # The manifest first: another run may begin both in between.
    files = None if output is None else LocalFolder(output)
    manifest = None if files is None else newest_manifest(files, watermark_us=sys.maxsize)
    gate = LocalFolder(checkpoint / "gate")
    identity = require_identity(
        gate, config.topic_names, output=None if output is None else f"file:{output}"
    )
    query_id = None if identity is None else identity.query_id
    if manifest is not None and manifest.query_id != query_id:
        raise ConfigError(
            "the output has releases of another query than the checkpoint's",
            hint=_ANOTHER_QUERY,
            output=config.output,
            checkpoint=config.checkpoint,
            found=manifest.query_id,
            expected=query_id,
        )


def local_folder(address: str) -> Path | None:
    """Return a folder on this machine; None for one elsewhere, or if Spark's settings decide."""
    scheme, colon, rest = address.partition(":")
    if colon and "/" not in scheme:
        return _absolute(f"/{rest}") if scheme == "file" else None
    return None if _is_configured_elsewhere() else _absolute(address)


def _absolute(path: str) -> Path:
    """Return a path as Hadoop qualifies it: without dots, links not resolved."""
    return Path("/", os.path.abspath(path).lstrip("/"))  # noqa: PTH100 - resolve() follows links


def _is_configured_elsewhere() -> bool:
    return (
        is_submitted()
        or any(os.environ.get(name) for name in _CONFIGURED_ELSEWHERE)
        or any((folder / "conf").exists() for folder in _pyspark())
    )


def _require_writable(folder: Path, setting: str) -> None:
    try:
        # A run that is refused for another reason leaves no folder.
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except (OSError, ValueError) as error:
        message = f"{setting}: the folder cannot be written to"
        hint = "Check the path, its owner, its permissions and the free space of its disk"
        cause = getattr(error, "strerror", None) or str(error)
        raise ConfigError(message, hint=hint, folder=str(folder), cause=cause) from error


def _require_file_systems(config: ConsumerConfig) -> None:
    """Raise ConfigError for a scheme whose file system the consumer's session will not have."""
    for address in (config.output, config.checkpoint):
        scheme, separator, _ = address.partition("://")
        if not separator or _is_configured_elsewhere():
            continue
        if scheme in _OTHER_S3 or (scheme in FILE_SYSTEMS and not _may_have(scheme, config)):
            raise missing_file_system(address)


def _may_have(scheme: str, config: ConsumerConfig) -> bool:
    """Whether the session has a store's file system, or may have it."""
    usual = {*SPARK_PACKAGES.split(","), *ICEBERG_PACKAGES.split(","), *LOGIN_PACKAGES.values()}
    if not config.jars and not usual.issuperset(config.session_packages.split(",")):
        return True  # any other package may load it
    jars = [jar for jar in config.jars.split(",") if jar]
    installed = (str(jar) for folder in _pyspark() for jar in (folder / "jars").glob("*.jar"))
    wanted = {f"{name.replace('.', '/')}.class" for name in FILE_SYSTEMS[scheme]}
    return any(_holds(jar, wanted) for jar in chain(jars, installed))


def _pyspark() -> list[Path]:
    spec = find_spec("pyspark")
    return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]


def _holds(jar: str, classes: Collection[str]) -> bool:
    """Whether a jar has one of the classes; one that is elsewhere, or cannot be read, may."""
    if "://" in jar:
        return True
    try:
        with ZipFile(jar) as content:
            return any(name in classes for name in content.namelist())
    except (OSError, BadZipFile):
        return True
