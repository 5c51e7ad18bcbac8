"""Checkpoints and outputs kept wrong on purpose: what is stored, found again and dropped."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Mutant
from tests.simulation.object_store import StoreClient
from tidegate.spark_consumer.batch import effect_loop
from tidegate.spark_consumer.checkpoint import writers
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.writers import Writers
from tidegate.spark_consumer.core import kept_releases
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.files import folder_of
from tidegate.spark_consumer.core.segment_list import SegmentList
from tidegate.spark_consumer.errors import WriterReplaced

__all__ = ["BROKEN_CHECKPOINTS"]


def _folders_of_the_last_part(self: SegmentList) -> frozenset[str]:
    return frozenset(folder_of(file) for part in self.parts[-1:] for file in part.files)


_write_list = SegmentList.write


def _write_without_the_first_part(self: SegmentList, *args: Any, **kwargs: Any) -> Any:
    listed, files = _write_list(self, *args, **kwargs)
    return replace(listed, parts=listed.parts[-1:]), files


_rest = SegmentList.rest


def _rest_without_removed(self: SegmentList, segments: Any) -> dict[str, Any]:
    return {**_rest(self, segments), "removed_segments": []}


_store_state = GateFiles.store_state


def _store_the_state_first(self: GateFiles, state: State, files: Any = ()) -> None:
    _store_state(self, state)
    _store_state(self, state, files)


_first_kept = kept_releases.first_kept


def _one_too_many(*args: Any, **kwargs: Any) -> int | None:
    first = _first_kept(*args, **kwargs)
    return None if first is None else first + kwargs["kept"]


def _whatever_the_mirrors_need(*args: Any, mirrored: int, **kwargs: Any) -> int | None:
    return _first_kept(*args, mirrored=sys.maxsize, **kwargs)


_drop_manifests = effect_loop.drop_manifests


def _drop_half_of_them(files: Any, *, before: int) -> None:
    with patch.object(files, "delete", lambda names: _delete(files, [*names][::2])):
        _drop_manifests(files, before=before)


def _delete(files: StoreClient, names: Any) -> None:
    StoreClient.delete(files, names)


def _require_no_successor(self: Writers) -> None:
    if self.number is None or self._has(self.number + 1):
        message = "another run has taken this folder"
        raise WriterReplaced(message)


def _needed_by_no_search(*args: Any, **kwargs: Any) -> bool:
    return False


BROKEN_CHECKPOINTS = (
    Mutant(
        "files of segments deleted that the newest state names",
        "soundness",
        ((SegmentList, "folders", property(_folders_of_the_last_part)),),
    ),
    Mutant(
        "a part of the segments left out of the next state",
        "soundness",
        ((SegmentList, "write", _write_without_the_first_part),),
    ),
    Mutant(
        "segments that were released named again after a restart",
        "soundness",
        ((SegmentList, "rest", _rest_without_removed),),
    ),
    Mutant(
        "a state stored before the files that it names",
        "soundness",
        ((GateFiles, "store_state", _store_the_state_first),),
    ),
    Mutant(
        "more manifests dropped than the setting says",
        "soundness",
        ((kept_releases, "first_kept", _one_too_many),),
    ),
    Mutant(
        "a manifest dropped whose release the mirrors stand at",
        "soundness",
        ((kept_releases, "first_kept", _whatever_the_mirrors_need),),
    ),
    Mutant(
        "old manifests left behind",
        "bounded_memory",
        ((effect_loop, "drop_manifests", _drop_half_of_them),),
    ),
    Mutant(
        "claims dropped that a search asks for",
        "soundness",
        ((writers, "is_needed", _needed_by_no_search),),
    ),
    Mutant(
        "a run that looks for its successor's claim only",
        "soundness",
        ((Writers, "require", _require_no_successor),),
    ),
)
