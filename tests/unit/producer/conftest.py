"""What tests of the hot path share: they run with the compiled accelerator and without it."""

import pytest

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
