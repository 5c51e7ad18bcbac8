"""What tests share: the hot path with the accelerator and without it, places of files."""

import pytest

from tests.buckets import gcs_server, s3_server
from tests.file_places import BucketPlace, FolderPlace
from tidegate.producer import accelerator


@pytest.fixture(scope="module", params=["python", "compiled"])
def each_way(request):
    """Run the tests of a module in Python alone, then with the accelerator."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(accelerator, "_ACCELERATOR", None)
        elif accelerator.accelerator() is None:
            pytest.skip(f"tidegate-accelerator: {accelerator.describe_accelerator()}")
        yield


@pytest.fixture
def compiled():
    """The accelerator; skips where it is not installed."""
    found = accelerator.accelerator()
    if found is None:
        pytest.skip(f"tidegate-accelerator: {accelerator.describe_accelerator()}")
    return found


@pytest.fixture(scope="session")
def s3():
    """A server that speaks S3."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs():
    """A server that speaks the JSON API of Cloud Storage."""
    with gcs_server() as server:
        yield server


@pytest.fixture(params=["folder", "s3", "gcs"])
def place(request, tmp_path, monkeypatch):
    """A location of files: a folder, a path in a bucket of S3, one in a bucket of GCS."""
    if request.param == "folder":
        folder = tmp_path / "a path"
        folder.mkdir()
        return FolderPlace(folder)
    return BucketPlace(request.getfixturevalue(request.param), monkeypatch)
