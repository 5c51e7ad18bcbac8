"""The order of the simulation's tests, and the garbage collector beneath them."""

from __future__ import annotations

import pytest

from tidegate.program.garbage import collect_rarely

LONGEST = "test_every_fault_and_every_way_of_going_on_is_met"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the test that takes longest, or one core would wait for it in the end."""
    items.sort(key=lambda item: getattr(item, "originalname", None) != LONGEST)


@pytest.fixture(scope="session", autouse=True)
def _garbage_is_collected_rarely() -> None:
    """Set the collector as a worker does: by default it takes a tenth of a seed's CPU time."""
    collect_rarely()
