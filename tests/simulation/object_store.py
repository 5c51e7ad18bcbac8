"""A bucket of an object store, and a run's access to one folder of it.

An object appears whole, a read is never outdated, and an object can be created only if it does not
exist.  There is no rename, and a listing may lack young objects.  A file that is written and then
renamed, as Hadoop does, leaves its temporary object behind if the process dies in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.disturbance import Disturbance
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.writers import Writers

_YOUNG = 30  # an object is young for so many writes of the bucket


@dataclass(slots=True)
class ObjectStore:
    """Name -> text; all operations are those of the service, each atomic."""

    objects: dict[str, str] = field(default_factory=dict)
    born: dict[str, int] = field(default_factory=dict)
    writes: int = 0

    def get(self, name: str) -> str | None:
        return self.objects.get(name)

    def put(self, name: str, text: str) -> None:
        self.writes += 1
        if name not in self.objects:
            self.born[name] = self.writes
        self.objects[name] = text

    def put_if_absent(self, name: str, text: str) -> bool:
        if name in self.objects:
            return False
        self.put(name, text)
        return True

    def list(self, folder: str, *, hides: Callable[[], bool]) -> list[str]:
        head = f"{folder}/"
        return sorted(
            name.removeprefix(head)
            for name in self.objects
            if name.startswith(head) and not (self.writes - self.born[name] < _YOUNG and hides())
        )

    def delete(self, name: str) -> None:
        for one in [one for one in self.objects if f"{one}/".startswith(f"{name}/")]:
            del self.objects[one]


class StoreClient:
    """One run's access to a folder, as `checkpoint.storage` has it: implements `JsonStorage`."""

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        disturbance: Disturbance | None,
        *,
        guard: StoreClient | None = None,
        on_create: Callable[[str, Any], None] = lambda _name, _content: None,
    ) -> None:
        self._store, self._folder, self._disturbance = store, folder, disturbance
        self._on_create = on_create
        self.writers: Writers = Writers(self, kept=1) if guard is None else guard.writers

    def take(self) -> int:
        return self.writers.take()

    def require_writer(self) -> None:
        self.writers.require()

    def read_json(self, name: str) -> Any:
        text = self._store.get(self._path(name))
        return None if text is None else json.loads(text)

    def names(self, folder: str) -> list[str]:
        found = self._store.list(self._path(folder), hides=self._hides)
        return [name for name in found if "/" not in name and not name.startswith((".", "_"))]

    def write_json(self, name: str, content: Any) -> None:
        self.require_writer()
        self._point()
        self._write(name, json.dumps(content))
        self._point()

    def create_json(self, name: str, content: Any) -> bool:
        self.require_writer()
        return self.create(name, content)

    def create(self, name: str, content: Any) -> bool:
        self._point()
        is_new = self._store.put_if_absent(self._path(name), json.dumps(content))
        if is_new:
            self._on_create(name, content)
        self._point()
        return is_new

    def delete(self, names: Iterable[str]) -> None:
        self.require_writer()
        for name in names:
            self._point()
            self._store.delete(self._path(name))

    def _write(self, name: str, text: str) -> None:
        """Write a temporary object and copy it: the copy is whole or not there."""
        if self._disturbance is not None and self._disturbance.chance(
            self._disturbance.profile.dies_in_rename
        ):
            folder, slash, file = self._path(name).rpartition("/")
            self._store.put(f"{folder}{slash}.{file}.tmp", text[: len(text) // 2])
            message = "killed before the rename"
            self._disturbance.tell(message)
            raise UnreachableError(message)
        self._store.put(self._path(name), text)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _point(self) -> None:
        if self._disturbance is not None:
            self._disturbance.point()

    def _hides(self) -> bool:
        disturbance = self._disturbance
        return disturbance is not None and disturbance.chance(disturbance.profile.lists_late)
