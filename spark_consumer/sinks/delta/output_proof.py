"""What an output proves about itself, when its checkpoint is lost or older than its tables.

The newest manifest is written after everything that it names, and the commits of the tables name
releases.  Both together say which release is whole, and whether the next one was begun.  Where they
contradict each other, or history is missing, nothing is proved.  It writes nothing and needs no
Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.batch_state import OutputProof

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
    from tidegate.spark_consumer.sinks.manifest import Manifest
    from tidegate.spark_consumer.sinks.port import TableVersion

__all__ = ["prove_output"]

_HINT = "Start with a new output and a new checkpoint"


def prove_output(
    manifest: Manifest | None, logs: Mapping[tuple[str, str], CommitLog]
) -> OutputProof:
    """Return what the newest manifest and all tables prove together.

    `logs` are by sink and table, and not read yet.  Raises ConfigError where they prove nothing,
    and what `CommitLog.load` raises.
    """
    if manifest is None:
        raise _unproven("the output has no release manifest")
    for log in logs.values():
        log.load(limit=None)
    for table, sinks in manifest.tables.items():
        for sink, named in sinks.items():
            _require_version(logs.get((sink, table)), manifest, named)
    ahead: set[tuple[int, int | None]] = {
        (commit.release, commit.through_us)
        for log in logs.values()
        for commit in log.commits
        if commit.release > manifest.release and commit.through_us is not None
    }
    return OutputProof(
        query_id=manifest.query_id,
        release=manifest.release,
        through_us=manifest.through_us,
        sinks=_sinks_of(manifest),
        begun_through_us=_begun(manifest, ahead),
        complete_from_us=manifest.complete_from_us,
    )


def _require_version(log: CommitLog | None, manifest: Manifest, named: TableVersion) -> None:
    found = [] if log is None else [c for c in log.commits if c.release <= manifest.release]
    if not found or found[-1].version != named.version:
        raise _unproven(
            "the history of a table does not have the version that the newest manifest names",
            table=named.path,
            version=named.version,
            found=found[-1].version if found else None,
            release=manifest.release,
        )


def _begun(manifest: Manifest, ahead: set[tuple[int, int | None]]) -> int | None:
    """Return the end of the one release that the tables have begun after the manifest's."""
    if not ahead:
        return None
    (release, through_us), *others = sorted(ahead, key=str)
    follows = release == manifest.release + 1
    if others or not follows or through_us is None or through_us <= manifest.through_us:
        raise _unproven(
            "the tables hold releases that no manifest names",
            release_in_manifest=manifest.release,
            releases_in_tables=sorted({number for number, _ in ahead}),
        )
    return through_us


def _sinks_of(manifest: Manifest) -> tuple[str, ...]:
    names = {sink: None for sinks in manifest.tables.values() for sink in sinks}
    if not names:
        raise _unproven("the newest manifest names no table", release=manifest.release)
    return tuple(names)


def _unproven(message: str, **fields: Any) -> ConfigError:
    return ConfigError(f"the output cannot be adopted: {message}", hint=_HINT, **fields)
