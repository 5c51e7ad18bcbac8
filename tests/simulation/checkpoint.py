"""What outlives a consumer's process: Spark's logs, the gate's files, segments, the tables.

Nothing passes from one batch to the next but what is stored here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.delta import DeltaTable
from tests.simulation.disturbance import Disturbance
from tests.simulation.gate_decoding import DecodedRow
from tests.simulation.gate_rows import DataRow, Segments
from tests.simulation.history import Manifested, Mirror, Released
from tests.simulation.losses import Damage, Losses
from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.spark_consumer.core.file_names import SEGMENTS
from tidegate.spark_consumer.core.transition import STATES_KEPT
from tidegate.spark_consumer.sinks.manifest import MANIFEST_FOLDER, Manifest, first_manifest

_FRONTIER_FILES_MAX = 40
"""A few dozen: parts and their indices, and what killed attempts at the same batches have left."""

_LIST_FILES_MAX = 24  # parts, and what killed attempts at the same batches have left

_WRITER_FILES_MAX = 40
"""Those that a search needs, the youngest, and what listings have lacked of late."""

Ends = dict[str, dict[int, int]]


@dataclass(slots=True)
class Checkpoint:
    disturbance: Disturbance | None = None
    damage: Damage | None = None
    losses: Losses | None = None
    offsets: dict[int, Ends] = field(default_factory=dict)
    """Spark's offset log: batch -> end offsets, written before the batch runs."""
    firsts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Spark's initial offsets: where the query began in each topic partition."""
    committed: int = -1  # Spark's commit log: the last batch that is done
    store: ObjectStore = field(default_factory=ObjectStore)
    segments: Segments = field(default_factory=dict)
    changelog: dict[str, DeltaTable] = field(default_factory=dict)
    mirror: dict[str, DeltaTable] = field(default_factory=dict)
    has_mirror: bool | None = None
    """Whether the query has a mirror: one may join.  None before the first run."""
    decided: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Batch -> when its plan was decided, and the cadence of the mirrors by then."""
    late: dict[int, list[DataRow]] = field(default_factory=dict)  # batch -> its late rows
    handed: dict[int, list[DataRow]] = field(default_factory=dict)
    """Batch -> the rows that a sink took before their release."""
    runs: list[int] = field(default_factory=list)  # the numbers that runs have taken
    dropped: dict[str, str] = field(default_factory=dict)
    """Manifests that the output has no longer: the checkers look at those as well."""

    def gate(self, on_create: Callable[[str, Any], None]) -> StoreClient:
        return _GateFolder(self, on_create)

    def output(self, gate: StoreClient) -> StoreClient:
        return _Output(self, gate)

    def read(self, name: str) -> Any:
        text = self.store.get(f"gate/{name}")
        return None if text is None else json.loads(text)

    def files_kept(self) -> Iterator[tuple[str, int, int]]:
        states = self._files("gate/states/", "gate/plans/")
        yield "files of the gate", states, 2 * STATES_KEPT + 2
        yield "files of the frontier", self._files("gate/frontiers/"), _FRONTIER_FILES_MAX
        yield "files of segment lists", self._files("gate/lists/"), _LIST_FILES_MAX
        yield "files of writers", self._files("gate/writers/"), _WRITER_FILES_MAX
        first = first_manifest(StoreClient(self.store, "output", None))
        older = [name for name in self.kept_manifests() if Path(name).stem < f"{first:012d}"]
        yield "manifests of dropped releases", len(older), 0

    def _files(self, *folders: str) -> int:
        """Return how many files there are, without temporary ones: a killed write leaves one."""
        return sum(
            name.startswith(folders) and not name.endswith(".tmp") for name in self.store.objects
        )

    def manifests(self) -> list[Manifest]:
        found = {**self.dropped, **self.kept_manifests()}
        return [Manifest.of(json.loads(found[name])) for name in sorted(found)]

    def kept_manifests(self) -> dict[str, str]:
        head = f"output/{MANIFEST_FOLDER}/0"
        objects = self.store.objects
        return {name: text for name, text in objects.items() if name.startswith(head)}

    def manifested(self) -> list[Manifested]:
        return [
            Manifested(
                manifest.release, manifest.after_us, manifest.through_us, manifest.rows,
                {
                    f"{sink}/{table}": version.version
                    for table, sinks in manifest.tables.items()
                    for sink, version in sinks.items()
                },
                manifest.gaps,
            )
            for manifest in self.manifests()
        ]  # fmt: skip

    def released(self) -> list[Released]:
        return [
            Released(
                manifest.release, manifest.batch, manifest.after_us, manifest.through_us,
                tuple(row.order_key for row in rows), tuple(row.ordinal for row in rows),
            )
            for manifest in self.manifests()
            for rows in [sorted(self._changes(manifest), key=_ordinal)]
        ]  # fmt: skip

    def captured(self) -> dict[bytes, dict[str, Any]]:
        last = self.manifests()[-1:]
        return {
            row.order_key: dict(row.columns)
            for manifest in last
            for row in self._changes(manifest, every=True)
        }

    def mirrors(self, topic: Callable[[str], str]) -> list[Mirror]:
        """Return what the mirrors hold at each manifest's versions, and at which time they stand.

        A table that no release up to there had is not named.  Left out is a manifest whose mirrors
        stand at a release of which no manifest is kept: nothing says any more when it ended.
        """
        manifests = self.manifests()
        ends_us = {manifest.release: manifest.through_us for manifest in manifests}
        return [
            Mirror(
                ends_us[manifest.mirror_release],
                {
                    (topic(table), key): row
                    for table, sinks in manifest.tables.items()
                    if "mirror" in sinks
                    for key, row in self.mirror[table].rows_at(sinks["mirror"].version).items()
                },
            )
            for manifest in manifests
            if manifest.mirror_release in ends_us
        ]

    def mirror_release(self, release: int) -> int | None:
        text = self.store.get(f"output/{MANIFEST_FOLDER}/{release:012d}.json")
        return None if text is None else Manifest.of(json.loads(text)).mirror_release

    def _changes(self, manifest: Manifest, *, every: bool = False) -> Iterator[DecodedRow]:
        for table, sinks in manifest.tables.items():
            for row in self.changelog[table].added_up_to(sinks["changelog"].version):
                if every or row.release == manifest.release:
                    yield row


class _Output(StoreClient):
    """The output's folder; what is deleted there is shown to the checkers all the same."""

    def __init__(self, checkpoint: Checkpoint, gate: StoreClient) -> None:
        super().__init__(checkpoint.store, "output", checkpoint.disturbance, guard=gate)
        self._kept, self._dropped = checkpoint.kept_manifests, checkpoint.dropped

    def delete(self, names: Any) -> None:
        self._dropped.update(self._kept())
        super().delete(names)


class _GateFolder(StoreClient):
    """The gate's folder; a segment is deleted as the folder that it is."""

    def __init__(self, checkpoint: Checkpoint, on_create: Callable[[str, Any], None]) -> None:
        super().__init__(checkpoint.store, "gate", checkpoint.disturbance, on_create=on_create)
        self._segments = checkpoint.segments

    def delete(self, names: Any) -> None:
        names = list(names)
        super().delete(names)
        folders = tuple(f"{name.removeprefix(f'{SEGMENTS}/')}/" for name in names)
        for name in [name for name in self._segments if f"{name}/".startswith(folders)]:
            del self._segments[name]


def _ordinal(row: DecodedRow) -> int:
    return row.ordinal
