"""The places that files of Datastream are read from, for tests that hold for each of them."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from tidegate.producer.datastream import file_store
from tidegate.producer.datastream.file_store import open_location

_SETTING = "source.location"


class FolderPlace:
    """A folder of this machine."""

    def __init__(self, folder):
        self.url = self.root = str(folder)
        self.store, _ = open_location(self.url, setting=_SETTING)

    def put(self, name, data):
        """Write a file, or replace it."""
        path = Path(self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def remove(self, name):
        (Path(self.root) / name).unlink()

    def vanish(self):
        """Let the whole location be gone."""
        shutil.rmtree(self.root)

    @contextmanager
    def denying(self):
        """Refuse to list and to open; root may read everything, so this is the system's error."""

        def fail(*_, **__):
            raise PermissionError(13, "Permission denied")

        before = file_store.os.scandir, file_store.os.walk, file_store.Path.open
        file_store.os.scandir = file_store.os.walk = file_store.Path.open = fail
        try:
            yield
        finally:
            file_store.os.scandir, file_store.os.walk, file_store.Path.open = before


class BucketPlace:
    """A path in a bucket of a server of `tests.buckets`."""

    def __init__(self, server, monkeypatch):
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        # A client is kept for each set of arguments, and remembers its server.
        for module, kind in (("s3fs", "S3FileSystem"), ("gcsfs", "GCSFileSystem")):
            if module in sys.modules:
                getattr(sys.modules[module], kind).clear_instance_cache()
        self.server = server
        self._bucket = server.create()
        self.url = f"{server.scheme}://{self._bucket}/a path"
        self.store, self.root = open_location(self.url, setting=_SETTING)
        self.denying = server.denying

    def put(self, name, data):
        """Write a file, or replace it."""
        self.server.put(self._bucket, f"a path/{name}", data)

    def remove(self, name):
        self.server.remove(self._bucket, f"a path/{name}")

    def vanish(self):
        """Delete the bucket."""
        self.server.drop(self._bucket)
